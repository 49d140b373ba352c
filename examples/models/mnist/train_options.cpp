#include "examples/models/mnist/train_options.h"

#include <algorithm>

#include "base/errors.h"
#include "runtime/graph/optimizer.h"

namespace headroom {

BucketSettings ReplicaOptions::buckets() const {
  BucketSettings settings;
  if (!bucket_bytes) return settings;
  if (*bucket_bytes < 1) throw InvalidArgument("bucket: must be at least 1 byte");
  return {std::min(settings.first_bytes, *bucket_bytes), *bucket_bytes};
}

void add_step_options(OptionSet& set, StepOptions& options) {
  set.begin_group("Step");
  set.add_integer("batch", "Batch size of a step", &options.batch, 1);
  set.add_choice("optimizer", "Optimizer", &options.optimizer,
                 {optimizer_names().begin(), optimizer_names().end()});
  set.add_choice("kernels", "Fuse convolutions with bias, relu and pooling, or call one kernel per op",
                 &options.kernels, {"fused", "library"});
  set.add_choice("math", "Precision of products on a GPU; sums are f32", &options.math);
  set.add_choice("data-on", "Keep the data on the device, or copy each batch from the host",
                 &options.data_on);
  set.add_integer("loader-depth",
                  "With --data-on host, number of batches that a thread prefetches (at least 2); 0: none",
                  &options.loader_depth, 0, 1024);
  set.add_integer("steps", "Steps to run (train_mnist: per epoch); 0: the default, or all of the data",
                  &options.steps, 0);
  set.begin_group();
}

void add_replica_options(OptionSet& set, ReplicaOptions& options) {
  constexpr int64_t kMaxReplicas = 1024;  // each is a thread
  set.begin_group("Replicas");
  set.add_integer(
      "replicas",
      "Copies of the net that share each batch, one per logical GPU, or as many GPUs as --place names",
      &options.replicas, 1, kMaxReplicas);
  set.add_switch("shard-optimizer", "Split the optimizer's state between the replicas",
                 &options.shard_optimizer);
  set.add_bytes("bucket",
                "Bytes of gradients that replicas reduce in one call (default: 25MiB, the first 1MiB)",
                &options.bucket_bytes);
  set.begin_group();
}

}  // namespace headroom
