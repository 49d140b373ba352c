// Small nets of different shapes, to try memory strategies on: each at any batch and width. Knows no device,
// no plan and no data.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/data_parallel.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/placement.h"
#include "runtime/plan/plan.h"

namespace headroom {

struct ZooSettings {
  int64_t batch = 64;
  int64_t width = 1;  // times the channels or units of each hidden layer
  std::string optimizer = "adam";
  bool fused = true;  // convolutions and dense layers with their neighbours, as in train_mnist
  uint64_t seed = 1;
  std::vector<ScopeOnDevice> placed = {};  // layers that are on another device than the rest

  int replicas = 1;  // that train together, each with a batch of this size
  Shard shard = {};  // of the optimizer's state
  BucketSettings buckets = {};
};

// One training step of a net, fed from the host.
struct ZooStep {
  Graph graph;
  std::vector<Value> parameters;
  Value input;          // f32, or i32 in [0, classes)
  Value labels;         // i32 in [0, classes)
  Value learning_rate;  // f32 []
  Value loss;           // f32 []
  int64_t classes = 0;

  Targets targets() const { return {{loss}, true}; }
};

struct ZooNet {
  std::string_view name;
  std::string_view summary;
  // Appends input, labels and loss of the net to the step's graph and fills its fields but for learning_rate.
  void (*build)(ZooStep& step, const ZooSettings& settings);
};

// Every net, the smallest first.
std::span<const ZooNet> zoo_nets();
// The one of that name; null when there is none.
const ZooNet* find_zoo_net(std::string_view name);

// The training step of a net: forward, gradients, updates. Throws InvalidArgument for a batch or width below
// 1, an unknown optimizer, and tensors that are too large to count.
std::unique_ptr<ZooStep> make_zoo_step(const ZooNet& net, const ZooSettings& settings);

}  // namespace headroom
