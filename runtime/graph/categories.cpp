#include "runtime/graph/categories.h"

#include <algorithm>
#include <variant>

namespace headroom {
namespace {

bool is_optimizer(const Op& op) {
  return std::holds_alternative<SgdUpdate>(op) || std::holds_alternative<RmspropUpdate>(op) ||
         std::holds_alternative<AdamUpdate>(op);
}

}  // namespace

std::vector<MemoryCategory> categorise(const Graph& graph) {
  std::vector<MemoryCategory> categories;
  const bool trains = std::any_of(graph.nodes().begin(), graph.nodes().end(),
                                  [](const Node& node) { return is_optimizer(node.op); });
  for (const ValueInfo& value : graph.values()) {
    const bool is_weight =
        value.kind == ValueKind::kVariable && !trains && value.initializer.kind != Initializer::Kind::kNone;
    categories.push_back(value.kind == ValueKind::kResult
                             ? value.backward ? MemoryCategory::kGradients : MemoryCategory::kActivations
                         : is_weight ? MemoryCategory::kWeights
                                     : MemoryCategory::kInputs);
  }
  for (const Node& node : graph.nodes()) {
    const std::vector<int> changed = mutated_inputs(node.op, node.inputs.size());
    for (const int position : changed) {
      MemoryCategory& category = categories[static_cast<size_t>(node.inputs[static_cast<size_t>(position)])];
      if (is_optimizer(node.op)) {
        // A weight's gradient stands behind it, a state's neighbours are states and the next weight.
        const auto next = static_cast<size_t>(position) + 1;
        const bool before_gradient = next < node.inputs.size() &&
                                     std::find(changed.begin(), changed.end(), position + 1) == changed.end();
        category = before_gradient ? MemoryCategory::kWeights : MemoryCategory::kOptimizerState;
      } else if (std::holds_alternative<MovingAverageUpdate>(node.op)) {
        category = MemoryCategory::kWeights;
      } else if (std::holds_alternative<CounterUpdate>(node.op) ||
                 std::holds_alternative<RowUpdate>(node.op)) {
        category = MemoryCategory::kInputs;
      }
    }
  }
  return categories;
}

int64_t variable_bytes(const Graph& graph, MemoryCategory category) {
  const std::vector<MemoryCategory> categories = categorise(graph);
  int64_t bytes = 0;
  for (const int id : graph.variables()) {
    if (categories[static_cast<size_t>(id)] == category) bytes += graph.value(id).spec.bytes();
  }
  return bytes;
}

}  // namespace headroom
