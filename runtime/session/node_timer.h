// Measures the time of a graph's nodes on a device. Knows no plan.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "runtime/graph/graph.h"
#include "runtime/session/kernels.h"
#include "runtime/session/mask_values.h"

namespace headroom {

// Runs each node some times in a row, on numbers of its own and, if constants give them, the masks of the
// step, and remembers its time: nodes of one op with equal operands, masks, results and workspaces take the
// same time.
class NodeTimer {
 public:
  // The device must be initialized, and outlive this.
  explicit NodeTimer(Device& device) : device_(device) {}

  // Returns the microseconds of each node with these kernels, which were made for the graph; 0 for a reshape.
  // Allocates driver memory for the largest node and releases it; returns nullopt if the process would then
  // use more than `max_process_bytes`, or the device has no room. Throws DeviceError and LibraryError as the
  // kernels do.
  std::optional<std::vector<double>> times_us(const Graph& graph, const Kernels& kernels,
                                              int64_t max_process_bytes);

 private:
  class Scratch;
  double measure_us(const Graph& graph, const Node& node, const std::vector<bool>& is_read, Kernel& kernel,
                    const Scratch& scratch, const MaskValues& masks);

  Device& device_;
  std::map<std::string, double> known_;  // by op, specs, masks, workspace and unread results
};

}  // namespace headroom
