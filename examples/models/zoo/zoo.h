// Small nets of different shapes for trying memory strategies, at any batch and width. Knows no device and no
// data.
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
  int64_t width = 1;  // multiplies the channels or units of each hidden layer
  std::string optimizer = "adam";
  bool fused = true;  // fuse convolutions and dense layers with their neighbors, as train_mnist does
  uint64_t seed = 1;
  std::vector<ScopeOnDevice> placed = {};  // layers on other devices

  int replicas = 1;  // each with a batch of `batch`
  Shard shard = {};  // this replica's part of the optimizer's state
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
  // Appends the net to step.graph and sets all fields of `step` but learning_rate.
  void (*build)(ZooStep& step, const ZooSettings& settings);
};

// All nets, the smallest first.
std::span<const ZooNet> zoo_nets();
// Returns null if there is no net of that name.
const ZooNet* find_zoo_net(std::string_view name);

// A training step: forward, gradients, updates. Throws InvalidArgument for a batch or width below 1, an
// unknown optimizer and tensors that are too large.
std::unique_ptr<ZooStep> make_zoo_step(const ZooNet& net, const ZooSettings& settings);

}  // namespace headroom
