// The time of a node, from its operations, its bytes and the figures of a device. Knows no device.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/graph/graph.h"

namespace headroom {

// Multiplications and additions of a node, forward or backward; one for each result of ops that only go over
// elements, none for moves of elements.
int64_t flops_of(const Graph& graph, const Node& node);
// Returns the bytes that a node reads and writes at least: its operands and results, once each. `is_read` by
// value: optional results that are not read do not count; empty: all count.
int64_t moved_bytes_of(const Graph& graph, const Node& node, const std::vector<bool>& is_read = {});

// The speed of a device in a training step.
struct DeviceSpeed {
  double flops_per_us = 0;  // for products and convolutions
  double bytes_per_us = 0;  // for its memory
  double launch_us = 0;     // minimum per node
  double half_factor = 1;   // speedup of products in 16 bits
};

// Workspace and time of the kernels of a graph, by node.
struct NodeCosts {
  std::vector<int64_t> workspace_bytes;
  std::vector<double> us;
};

// Microseconds of each node: the longer of arithmetic and memory traffic. 0 for a reshape.
std::vector<double> node_times_us(const Graph& graph, const DeviceSpeed& speed);

}  // namespace headroom
