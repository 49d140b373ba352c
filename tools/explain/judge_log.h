// Why a log's failure happened: what its messages say of themselves, then the numbers, which are judged as
// those of our own errors are (runtime/base/cause.h). Knows no advice and no output.
#pragma once

#include "runtime/base/cause.h"
#include "tools/explain/case.h"

namespace headroom::explain {

struct LogJudgement : Judgement {
  const Failure* witness = nullptr;  // the failure that shows it; null where that is found.failure
};

LogJudgement judge_log(const Case& found);

}  // namespace headroom::explain
