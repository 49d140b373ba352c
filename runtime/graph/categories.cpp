#include "runtime/graph/categories.h"

#include <algorithm>

namespace headroom {
namespace {

bool trains_weights(const Op& op) {
  return traits_of(op).changes == Changes::kWeights;
}

}  // namespace

std::vector<MemoryCategory> categorize(const Graph& graph) {
  std::vector<MemoryCategory> categories;
  const bool trains =
      std::ranges::any_of(graph.nodes(), [](const Node& node) { return trains_weights(node.op); });
  for (const ValueInfo& value : graph.values()) {
    const bool is_weight =
        value.kind == ValueKind::kVariable && !trains && value.initializer.kind != Initializer::Kind::kNone;
    categories.push_back(value.kind == ValueKind::kResult
                             ? value.backward ? MemoryCategory::kGradients : MemoryCategory::kActivations
                         : is_weight ? MemoryCategory::kWeights
                                     : MemoryCategory::kInputs);
  }
  for (const Node& node : graph.nodes()) {
    const Changes changes = traits_of(node.op).changes;
    if (changes == Changes::kReplicas) continue;  // another update says what those are
    const UpdateOperands operands = update_operands(node.op);
    for (const int position : mutated_inputs(node.op, node.inputs.size())) {
      const auto i = static_cast<size_t>(position);
      const bool is_state =
          changes == Changes::kWeights && (i - operands.shared) % operands.per_variable != 0;
      categories[static_cast<size_t>(node.inputs[i])] = changes == Changes::kRecords ? MemoryCategory::kInputs
                                                        : is_state ? MemoryCategory::kOptimizerState
                                                                   : MemoryCategory::kWeights;
    }
  }
  return categories;
}

int64_t variable_bytes(const Graph& graph, MemoryCategory category) {
  const std::vector<MemoryCategory> categories = categorize(graph);
  int64_t bytes = 0;
  for (const int id : graph.variables()) {
    if (categories[static_cast<size_t>(id)] == category) bytes += graph.value(id).spec.bytes();
  }
  return bytes;
}

}  // namespace headroom
