// Judges why a log's failure happened: what its messages say of themselves, then the numbers, which are
// judged as those of our own errors are (base/judge.h). Knows no advice and no output.
#pragma once

#include <string>
#include <vector>

#include "base/judge.h"
#include "tools/explain/case.h"

namespace headroom::explain {

// A cause that the log allows besides the first, or instead of it.
struct Possibility {
  Cause cause = Cause::kUnknown;
  std::string reason;
  std::string confirm;  // what would show that it is this one
};

struct LogJudgement : Judgement {
  std::vector<Possibility> possible;    // instead of it, likeliest first; of an ambiguous status all
  std::vector<Possibility> other_ways;  // what would make the request fit, too
  const Failure* witness = nullptr;     // the failure that shows it; null where that is found.failure
};

LogJudgement judge_log(const Case& found);

}  // namespace headroom::explain
