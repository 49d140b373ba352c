// The kernels of a graph, each prepared once for the device of its node. Knows no plan.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/kernel.h"
#include "runtime/graph/graph.h"
#include "runtime/session/device_set.h"

namespace headroom {

class Kernels {
 public:
  // Prepares every node of the graph: for a GPU by `settings`, for all other devices on the CPU; each with
  // the collective of its device, those of the set in place of the one in the settings. When a device has no
  // room for a library that a kernel needs, its strategy gives idle memory back to the driver and the kernel
  // is made once more. Nodes must not be added or replaced afterwards. Throws LibraryError, DeviceError, and
  // InvalidArgument for a node on a device that is not in the set.
  Kernels(const Graph& graph, const DeviceSet& devices, const KernelSettings& settings = {});
  Kernels(const Graph& graph, Device& device, Allocator& allocator, const KernelSettings& settings = {})
      : Kernels(graph, DeviceSet(device, allocator, settings.collective), settings) {}

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
