// The reason that a traced program ran out of memory or will do so, in one sentence: leaks, growing batches,
// kept graphs, and other causes, with their bytes. Knows no output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/cause.h"
#include "tools/report/failure.h"
#include "tools/report/history.h"
#include "tools/report/steps.h"

namespace headroom::report {

struct Finding {
  Cause cause = Cause::kUnknown;
  int64_t bytes = 0;       // that it explains
  std::string title = {};  // "Leak"
  std::string sentence =
      {};                   // "64 MiB a step since step 1, allocated at snap.py:8": no capital, no full stop
  std::string advice = {};  // next step
  std::vector<size_t> kept_blocks = {};  // by a leak, for views that draw them
};

struct Verdict {
  std::string sentence;  // about the program, with a full stop
  std::optional<Failure> failure;
  std::vector<Finding> findings;  // sorted by the bytes that they explain, largest first
};

// `device_bytes` is the memory of the device, for recordings that do not say it.
Verdict judge_history(const History& history, const Steps& steps,
                      std::optional<int64_t> device_bytes = std::nullopt);

}  // namespace headroom::report
