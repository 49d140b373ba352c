// The kernels of a graph, prepared once. Knows no plan and no strategy.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/kernel.h"
#include "runtime/graph.h"

namespace headroom {

class Kernels {
 public:
  // Prepares every node of the graph for that kind of device. Nodes must not be added or replaced afterwards.
  Kernels(const Graph& graph, DeviceKind kind);

  // Kernels made elsewhere, one for each node in order.
  explicit Kernels(std::vector<std::unique_ptr<Kernel>> kernels);

  Kernel& of_node(int id) const { return *kernels_[static_cast<size_t>(id)]; }
  // By node id, as make_plan takes it.
  std::span<const int64_t> workspace_bytes() const { return workspace_bytes_; }

 private:
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<int64_t> workspace_bytes_;
};

}  // namespace headroom
