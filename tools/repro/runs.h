// The runs of the scenarios, each named by its id. They reproduce a failure and return their measurements;
// they do not know the expected figures.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include "examples/models/mnist/train_result.h"
#include "examples/models/mnist/train_settings.h"
#include "runtime/app/runtime.h"
#include "tools/repro/scenario.h"

namespace headroom::repro {

// An environment variable, set while this lives.
class Environment {
 public:
  // Not set at all for a null value.
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~Environment() { set(before_ ? before_->c_str() : nullptr); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void set(const char* value) const { value != nullptr ? setenv(name_, value, 1) : unsetenv(name_); }

  const char* name_;
  std::optional<std::string> before_;
};

// The machines of the stories, and the variable that hides GPUs.
inline constexpr std::string_view kLaptop = "laptop-2gb", kSixGb = "card-6gb", kFourCards = "rtx-2080ti";
inline constexpr const char* kFourGpus = "sim:four-2080ti";
inline constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

// The conv net of TensorFlow's tutorial as TensorFlow runs it: one kernel for each op, batches from the host.
TrainSettings settings_of_tutorial();
// Trains on drawn digits for one epoch of four steps: memory is the same from the first one on.
TrainResult train_four_steps(TrainSettings settings, Runtime& runtime);

using Run = Measured(const Stage& stage);
// A: TensorFlow's conv net on a laptop's GPU of 2 GB (training_runs.cpp, limit_runs.cpp), and on several or
// virtual GPUs (device_runs.cpp, replica_runs.cpp).
Run run_a1, run_a2, run_a3, run_a4, run_a5, run_a6, run_a7, run_a8, run_a9, run_a10, run_a11, run_a12;
// B: four 2080 Ti (device_runs.cpp, placement_runs.cpp) and threads (stream_runs.cpp).
Run run_b1, run_b2, run_b3, run_b4, run_b5, run_b6, run_b7;
// C: PyTorch on a card of 6 GB (caching_runs.cpp).
Run run_c1, run_c2, run_c3, run_c4, run_c5, run_c6, run_c7, run_c8, run_c9, run_c10, run_c11;
// D: PyTorch's model of devices (placement_runs.cpp, replica_runs.cpp), of memory (caching_runs.cpp) and of
// streams (stream_runs.cpp).
Run run_d1, run_d2, run_d3, run_d4, run_d5, run_d6, run_d7, run_d8;

}  // namespace headroom::repro
