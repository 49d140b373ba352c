// The names under which a plan asks a strategy for memory, and a request that makes them only where they are
// read. Knows no device.
#pragma once

#include <vector>

#include "allocators/allocator.h"
#include "allocators/observer.h"
#include "runtime/graph/categories.h"
#include "runtime/plan/plan.h"

namespace headroom {

// The texts belong to the graph. `categories` are categorize(graph)'s.
inline MemoryUser user_of_variable(int id, const Graph& graph,
                                   const std::vector<MemoryCategory>& categories) {
  const ValueInfo& info = graph.value(id);
  return {"variables", info.name, info.source, categories[id]};
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
    user = {user.op, owner.name, owner.source, categories[buffer.owner]};
  }
  return user;
}

// Memory for user_of(), which is called only for an observer or an error: looking up the names of a large
// graph takes longer than a strategy does. Throws as Allocator::allocate does.
template <typename UserOf>
void* allocate_for(Allocator& allocator, int64_t bytes, Stream stream, const UserOf& user_of) {
  if (allocator.has_observer()) return allocator.allocate(bytes, stream, user_of());
  try {
    return allocator.allocate(bytes, stream);
  } catch (OutOfMemory& error) {
    const MemoryUser user = user_of();
    error.set_user(std::string(user.op), std::string(user.tensor), std::string(user.source));
    throw;
  }
}

}  // namespace headroom
