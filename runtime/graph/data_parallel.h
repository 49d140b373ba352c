// Data parallelism as a pass over a graph: one replica of several that train together. Knows no device and no
// way to reach the others.
#pragma once

#include <cstdint>

#include "runtime/graph/graph.h"

namespace headroom {

// Gradients that are reduced in one call. PyTorch's, for DistributedDataParallel: a bucket is closed by the
// gradient that fills it, and the first is small so that reducing begins early.
struct BucketSettings {
  int64_t first_bytes = int64_t{1} << 20;
  int64_t bytes = int64_t{25} << 20;
};

// Turns a graph that trains by itself into one of `replicas` that train on shares of a batch: each gradient
// that an optimizer takes becomes its mean over all replicas. Gradients are reduced in buckets, in the order
// in which they are made and as soon as a bucket is complete, so that a parallel plan reduces beside the rest
// of the way back; the buckets follow each other in the same order on every replica. What else reads a
// gradient still sees the replica's own. To be called last, after fuse(); one replica leaves the graph as it
// is. Throws InvalidArgument for fewer than one replica, for buckets of less than a byte and for nodes that
// are put on devices: a replica has one.
void reduce_gradients(Graph& graph, int replicas, const BucketSettings& buckets = {});

}  // namespace headroom
