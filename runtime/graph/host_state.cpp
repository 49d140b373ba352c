#include "runtime/graph/host_state.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "runtime/graph/placement.h"

namespace headroom {

std::vector<int> find_movable_states(const Graph& graph, std::span<const Value> fetches) {
  std::vector<bool> is_state(graph.values().size()), is_other(graph.values().size());
  for (const Value& fetch : fetches) is_other[static_cast<size_t>(fetch.id)] = true;
  for (const Node& node : graph.nodes()) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto value = static_cast<size_t>(node.inputs[i]);
      (is_state_operand(node, i) ? is_state : is_other)[value] = true;
    }
  }
  std::vector<int> states;
  for (const int id : graph.variables()) {
    const auto i = static_cast<size_t>(id);
    if (is_state[i] && !is_other[i] && graph.value(id).device.empty()) states.push_back(id);
  }
  std::ranges::stable_sort(
      states, [&](int a, int b) { return graph.value(a).spec.bytes() > graph.value(b).spec.bytes(); });
  return states;
}

void put_on_host(Graph& graph, std::span<const int> variables) {
  for (const int id : variables) graph.set_device(id, std::string(kHostPlace));
}

std::vector<int64_t> host_state_bytes(const Graph& graph) {
  std::vector<int64_t> bytes;
  for (const Node& node : graph.nodes()) {
    bytes.push_back(0);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueInfo& operand = graph.value(node.inputs[i]);
      if (operand.device == kHostPlace && is_state_operand(node, i)) bytes.back() += operand.spec.bytes();
    }
  }
  return bytes;
}

}  // namespace headroom
