// The names under which a plan asks a strategy for memory. Knows no device.
#pragma once

#include <vector>

#include "allocators/observer.h"
#include "runtime/graph/categories.h"
#include "runtime/plan/plan.h"

namespace headroom {

// The texts belong to the graph. `categories` are categorise(graph)'s.
inline MemoryUser user_of_variable(int id, const Graph& graph,
                                   const std::vector<MemoryCategory>& categories) {
  const ValueInfo& info = graph.value(id);
  return {"variables", info.name, info.source, categories[static_cast<size_t>(id)]};
}

inline MemoryUser user_of_input_sets() {
  return {{}, "the inputs of two steps", {}, MemoryCategory::kActivations};
}

inline MemoryUser user_of_arena() {
  return {{}, "the arena of the packed plan", {}, MemoryCategory::kActivations};
}

inline MemoryUser user_of(const Buffer& buffer, const Graph& graph,
                          const std::vector<MemoryCategory>& categories) {
  MemoryUser user{"copy to device", "workspace", {}, MemoryCategory::kWorkspace};
  if (buffer.node >= 0) {
    const Node& node = graph.node(buffer.node);
    user.op = node.name;
    if (!node.outputs.empty()) user.source = graph.value(node.outputs.front()).source;
  }
  if (buffer.owner >= 0) {
    const ValueInfo& owner = graph.value(buffer.owner);
    user = {user.op, owner.name, owner.source, categories[static_cast<size_t>(buffer.owner)]};
  }
  return user;
}

}  // namespace headroom
