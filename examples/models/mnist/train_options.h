// The options of a training step that decide how much memory it takes, shared by train_mnist and the command.
// Knows no net.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "examples/models/mnist/train_settings.h"
#include "runtime/app/option_set.h"
#include "runtime/graph/data_parallel.h"

namespace headroom {

struct StepOptions {
  int64_t batch = 64;
  std::string optimizer = "adam";
  std::string kernels = "fused";  // or "library"
  Math math = Math::kTf32;
  DataOn data_on = DataOn::kDevice;
  int64_t loader_depth = 4;  // with data on the host; 0: each step copies its own batch
  int64_t steps = 0;         // per epoch; 0: all of the data

  bool fused() const { return kernels == "fused"; }
};

struct ReplicaOptions {
  int64_t replicas = 1;
  bool shard_optimizer = false;
  std::optional<int64_t> bucket_bytes;

  int count() const { return static_cast<int>(replicas); }
  // Throws InvalidArgument for a bucket below 1 byte.
  BucketSettings buckets() const;
};

// Add one option per field. Parsing `set` fills `options`, whose values are the defaults.
void add_step_options(OptionSet& set, StepOptions& options);
void add_replica_options(OptionSet& set, ReplicaOptions& options);

}  // namespace headroom
