#include "examples/models/mnist/replica_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/errors.h"

namespace headroom {
namespace {

// Far above the GPUs of any host; each is a thread.
constexpr int64_t kMostReplicas = 1024;

}  // namespace

BucketSettings ReplicaOptions::buckets() const {
  BucketSettings settings;
  if (!bucket_bytes) return settings;
  if (*bucket_bytes < 1) throw InvalidArgument("bucket: must be at least 1 byte");
  return {std::min(settings.first_bytes, *bucket_bytes), *bucket_bytes};
}

void add_replica_options(OptionSet& set, ReplicaOptions& options) {
  set.add_integer("replicas", "Train on so many logical GPUs, which share each batch", &options.replicas, 1,
                  kMostReplicas);
  set.add_switch("shard-optimizer", "Each replica keeps its share of the optimizer's state, not all of it",
                 &options.shard_optimizer);
  set.add_bytes("bucket", "Gradients that replicas reduce in one call; 25MiB, the first 1MiB",
                &options.bucket_bytes);
}

}  // namespace headroom
