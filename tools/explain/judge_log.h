// Judges why a log's failure happened: what its messages say of themselves, then the numbers, which are
// judged as those of our own errors are (base/judge.h). Knows no advice and no output.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/judge.h"
#include "tools/explain/case.h"

namespace headroom::explain {

// A cause that the log allows besides the first, or instead of it.
struct Possibility {
  Cause cause = Cause::kUnknown;
  std::string reason;
  std::string confirm;  // evidence that would confirm it
};

struct LogJudgment : Judgment {
  std::string_view activity;  // phase of the `during` row that gave the reason; empty: another rule did
  std::vector<Possibility> possible;    // alternatives, likeliest first; all of an ambiguous status
  std::vector<Possibility> other_ways;  // other ways to make the request fit
  const Failure* witness = nullptr;     // the failure that shows it; null where that is found.failure
};

LogJudgment judge_log(const Case& found);

}  // namespace headroom::explain
