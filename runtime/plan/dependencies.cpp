#include "runtime/plan/dependencies.h"

#include <algorithm>

#include "runtime/base/errors.h"
#include "runtime/graph/ancestors.h"

namespace headroom {
namespace {

// Bytes [begin, end) of a device's arena or of a variable.
struct Access {
  int device;
  int variable;  // -1: the arena
  int64_t begin, end;
  bool writes;
};

class Accesses {
 public:
  Accesses(const Graph& graph, const Plan& plan, const Node& node, int id) : graph_(graph), plan_(plan) {
    const std::vector<int> mutated = mutated_inputs(node.op, node.inputs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      add_value(node.inputs[i],
                std::find(mutated.begin(), mutated.end(), static_cast<int>(i)) != mutated.end());
    }
    // A reshape writes nothing: its result is its operand.
    for (int output : node.outputs) add_value(output, !std::holds_alternative<Reshape>(node.op));
    add_buffer(plan.workspace_of_node[static_cast<size_t>(id)], true);
  }

  bool conflicts_with(const Accesses& other) const {
    for (const Access& a : all_) {
      for (const Access& b : other.all_) {
        if ((a.writes || b.writes) && a.device == b.device && a.variable == b.variable && a.begin < b.end &&
            b.begin < a.end)
          return true;
      }
    }
    return false;
  }

 private:
  void add_value(int id, bool writes) {
    const int variable = plan_.variable_of_value[static_cast<size_t>(id)];
    if (variable >= 0) {
      all_.push_back({0, variable, 0, graph_.value(variable).spec.bytes(), writes});
    } else {
      add_buffer(plan_.buffer_of_value[static_cast<size_t>(id)], writes);
    }
  }

  void add_buffer(int id, bool writes) {
    if (id < 0) return;
    const Buffer& buffer = plan_.buffers[static_cast<size_t>(id)];
    if (buffer.doubled) return;  // no node writes there
    all_.push_back({buffer.device, -1, buffer.offset_bytes, buffer.offset_bytes + buffer.bytes, writes});
  }

  const Graph& graph_;
  const Plan& plan_;
  std::vector<Access> all_;
};

}  // namespace

std::vector<Waits> find_dependencies(const Graph& graph, const Plan& plan, std::span<const int> nodes) {
  if (!has_arena(plan.mode)) throw InvalidArgument("dependencies: a dynamic plan has no addresses");
  std::vector<Accesses> accesses;
  for (int id : nodes) accesses.emplace_back(graph, plan, graph.node(id), id);

  // Two steps in a row are enough: a conflict with a node of the step before last is one with the same node
  // of the last step, too. Going backwards, a conflict with a node that an entry already follows from is
  // transitive.
  const size_t count = nodes.size();
  std::vector<Waits> waits(count);
  Ancestors before(2 * count);
  for (size_t i = 0; i < 2 * count; ++i) {
    for (size_t j = i; j-- > 0;) {
      if (before.has(i, j) || !accesses[i % count].conflicts_with(accesses[j % count])) continue;
      before.add(i, j);
      if (i < count) {
        waits[i].after.push_back(static_cast<int>(j));
      } else if (j < count) {
        waits[i - count].after_previous.push_back(static_cast<int>(j));
      }
    }
  }
  return waits;
}

}  // namespace headroom
