// The runs of the scenarios, each named by its id. They make something happen and say what they measured;
// they do not know what is expected.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

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

// A: TensorFlow's conv net on a laptop's GPU of 2 GB (training_runs.cpp).
Measured run_a1(const Stage& stage);
Measured run_a2(const Stage& stage);
Measured run_a3(const Stage& stage);
Measured run_a4(const Stage& stage);
Measured run_a5(const Stage& stage);
Measured run_a6(const Stage& stage);
Measured run_a7(const Stage& stage);
// Of several or virtual GPUs (device_runs.cpp).
Measured run_a8(const Stage& stage);
Measured run_a9(const Stage& stage);
// Of replicas (replica_runs.cpp).
Measured run_a10(const Stage& stage);

// B: four 2080 Ti (device_runs.cpp).
Measured run_b1(const Stage& stage);
Measured run_b2(const Stage& stage);
Measured run_b3(const Stage& stage);  // placement_runs.cpp, as are B7 and D1
Measured run_b4(const Stage& stage);
Measured run_b5(const Stage& stage);
Measured run_b7(const Stage& stage);

// C: PyTorch on a card of 6 GB (caching_runs.cpp).
Measured run_c1(const Stage& stage);
Measured run_c2(const Stage& stage);
Measured run_c3(const Stage& stage);
Measured run_c4(const Stage& stage);
Measured run_c5(const Stage& stage);
Measured run_c6(const Stage& stage);
Measured run_c7(const Stage& stage);
Measured run_c8(const Stage& stage);
Measured run_c9(const Stage& stage);

// Threads (stream_runs.cpp).
Measured run_b6(const Stage& stage);

// D: PyTorch's model of memory and devices (model_runs.cpp) and of streams (stream_runs.cpp).
Measured run_d2(const Stage& stage);
Measured run_d1(const Stage& stage);
Measured run_d3(const Stage& stage);
Measured run_d4(const Stage& stage);
Measured run_d5(const Stage& stage);
Measured run_d6(const Stage& stage);
Measured run_d7(const Stage& stage);
// Of replicas (replica_runs.cpp).
Measured run_d8(const Stage& stage);

}  // namespace headroom::repro
