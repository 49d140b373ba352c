// Placement of a graph's nodes: a pass that resolves the devices named by nodes and values, and
// inserts the copies between devices. Knows no plan and no memory.
//
// One rule serves programs that name devices for ops, as TensorFlow's do, and programs that name them for
// tensors, as PyTorch's do: a node reads on its own device. A node that reads from another device gets a
// copy if copies are allowed; otherwise it is an error, and the program has to call to_device().
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device_name.h"
#include "runtime/graph/graph.h"

namespace headroom {

struct PlacementSettings {
  // A node that reads from another device gets a copy: TensorFlow's device policy "silent". False is its
  // policy "explicit", which is PyTorch's rule.
  bool allow_copies = false;
  // A node whose device does not exist goes to another: of the same kind if possible, otherwise the default
  // one. Implies copies.
  bool allow_soft_placement = false;
};

// Resolves every device in the graph: to those of `devices` (the default one first, which the graph then
// writes as an empty name) or, softly, to others of them. A copy is a copy_to_device node before the first
// reader; each value gets at most one for each device, which all readers there share. Values keep their ids.
// A graph that names no device is unchanged. Throws InvalidArgument, with the graph unchanged, for a missing
// device, operands on other devices if copies are not allowed, and an update that would need a copy of a
// value that another update changes.
void place(Graph& graph, std::span<const DeviceName> devices, const PlacementSettings& rules);

// The page-locked host memory of the default device, as the device of values stored there: its own copies
// move them there and back, and updates read and write their states there over the link. No other node uses
// it, and no program can name it.
inline constexpr std::string_view kHostPlace = "host memory";

// Returns true if an operand of a node is a state that it keeps for a weight: momentum, or Adam's moments.
bool is_state_operand(const Node& node, size_t operand);

// Return true if a node copies a value to the host or back.
bool is_store_to_host(const Node& node);
bool is_load_from_host(const Graph& graph, const Node& node);
inline bool is_host_copy(const Graph& graph, const Node& node) {
  return is_store_to_host(node) || is_load_from_host(graph, node);
}

// A name scope of a graph and the device of its contents.
struct ScopeOnDevice {
  std::string scope, device;
};

// Parses "dense=/GPU:1,dense_1=/GPU:1". Throws InvalidArgument for anything else.
std::vector<ScopeOnDevice> parse_scopes_on_devices(std::string_view text);
// Puts the scopes of a graph that is still to be made on their devices.
void put_scopes_on_devices(Graph& graph, std::span<const ScopeOnDevice> scopes);
// Throws InvalidArgument for the first scope in which the graph, now made, has nothing.
void require_scopes(const Graph& graph, std::span<const ScopeOnDevice> scopes);

// The names of the devices in the graph: the default one's, which is empty, first and the others in the order
// in which values first live on them.
std::vector<std::string> devices_of(const Graph& graph);

// Returns the reason that a node cannot run on its device, in PyTorch's words: the operand that lives
// elsewhere, or an empty text.
std::string find_operand_elsewhere(const Graph& graph, const Node& node);

// Formats like TensorFlow's log_device_placement, "dense/matmul: (matmul):
// /job:localhost/replica:0/task:0/device:GPU:0": a line for each input, variable and node of a placed graph,
// copies with their source and the bytes.
std::vector<std::string> placement_lines(const Graph& graph, const DeviceName& default_device);
// Returns the lines for devices that have other names outside the graph; the default one's is empty in it.
std::vector<std::string> placement_lines(const Graph& graph,
                                         const std::function<DeviceName(const std::string&)>& name_of);

}  // namespace headroom
