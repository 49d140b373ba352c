// The settings of data-parallel training as options that programs share. Knows no net.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/app/option_set.h"
#include "runtime/graph/data_parallel.h"

namespace headroom {

struct ReplicaOptions {
  int64_t replicas = 1;
  bool shard_optimizer = false;
  std::optional<int64_t> bucket_bytes;

  int count() const { return static_cast<int>(replicas); }
  // Throws InvalidArgument for a bucket of nothing.
  BucketSettings buckets() const;
};

// Adds one option for each field, which `options` (with its defaults) receives when `set` parses.
void add_replica_options(OptionSet& set, ReplicaOptions& options);

}  // namespace headroom
