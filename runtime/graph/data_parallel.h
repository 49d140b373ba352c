// Data parallelism as a pass: the graph of one replica of several that train together. Knows no device
// and no collective.
#pragma once

#include <cstdint>

#include "runtime/graph/graph.h"

namespace headroom {

// Bytes of gradients that are reduced in one call. The gradient that fills a bucket closes it, and the first
// bucket is small so that reducing starts early: PyTorch's sizes for DistributedDataParallel.
struct BucketSettings {
  int64_t first_bytes = int64_t{1} << 20;
  int64_t bytes = int64_t{25} << 20;
};

// Turns a graph for a single replica into one of `replicas` that each train on a share of a batch: every
// optimizer uses the mean of its gradients over all replicas. A bucket of gradients is reduced as soon as its
// last gradient is made, so that a parallel plan reduces during the backward pass; all replicas reduce the
// buckets in the same order. Other readers of a gradient still get the replica's own. A net on several
// devices has buckets for each of them, in an order for each: the gradients are summed where they are made.
// /GPU:0 is the replica's first device, as in nodes that name none. Call it last, after fuse(), and before
// place(). One replica leaves the graph unchanged. Throws InvalidArgument for fewer than one replica and for
// buckets of less than a byte.
void reduce_gradients(Graph& graph, int replicas, const BucketSettings& buckets = {});

}  // namespace headroom
