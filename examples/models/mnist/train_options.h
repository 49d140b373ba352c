// The settings of a training step that decide how much memory it takes, as options that all programs share.
// Knows no net.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/app/option_set.h"

namespace headroom {

struct StepOptions {
  int64_t batch = 64;
  std::string optimizer = "adam";
  std::string kernels = "fused";   // or "library"
  std::string math = "tf32";       // one of math_names()
  std::string data_on = "device";  // or "host"
  int64_t loader_depth = 4;        // with data on the host; 0: each step copies its own
  int64_t steps = 0;               // of an epoch; 0: all of the data

  bool fused() const { return kernels == "fused"; }
};

// Adds one option for each field, which `options` (with its defaults) receives when `set` parses.
void add_step_options(OptionSet& set, StepOptions& options);

}  // namespace headroom
