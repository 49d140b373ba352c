#include "runtime/plan/dependencies.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "base/errors.h"
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
      add_value(node.inputs[i], std::ranges::find(mutated, static_cast<int>(i)) != mutated.end());
    }
    // A reshape writes nothing: its result is its operand.
    for (int output : node.outputs) add_value(output, !std::holds_alternative<Reshape>(node.op));
    add_buffer(plan.workspace_of_node[id], true);
  }

  const std::vector<Access>& all() const { return all_; }

 private:
  void add_value(int id, bool writes) {
    const int variable = plan_.variable_of_value[id];
    if (variable >= 0) {
      all_.push_back({0, variable, 0, graph_.value(variable).spec.bytes(), writes});
    } else {
      add_buffer(plan_.buffer_of_value[id], writes);
    }
  }

  void add_buffer(int id, bool writes) {
    if (id < 0) return;
    const Buffer& buffer = plan_.buffers[id];
    if (buffer.doubled) return;  // no node writes there
    all_.push_back({buffer.device, -1, buffer.offset_bytes, buffer.offset_bytes + buffer.bytes, writes});
  }

  const Graph& graph_;
  const Plan& plan_;
  std::vector<Access> all_;
};

// The last users of the bytes of one arena or variable. Pieces with one history each, by their first byte; a
// write makes one piece of all that it covers, so that few remain.
class LastUsers {
 public:
  // Calls visit(item) for all items that `item` must follow if it uses [begin, end).
  template <typename Visit>
  void for_each_conflict(const Access& access, const Visit& visit) {
    const auto end = piece_from(access.end);
    for (auto piece = piece_from(access.begin); piece != end; ++piece) {
      if (piece->second.writer >= 0) visit(piece->second.writer);
      if (access.writes) std::for_each(piece->second.readers.begin(), piece->second.readers.end(), visit);
    }
  }

  void note(const Access& access, int item) {
    const auto first = piece_from(access.begin), end = piece_from(access.end);
    if (access.writes) {
      pieces_.erase(std::next(first), end);
      first->second = {item, {}};
    } else {
      for (auto piece = first; piece != end; ++piece) piece->second.readers.push_back(item);
    }
  }

 private:
  struct Users {
    int writer = -1;
    std::vector<int> readers;  // since then
  };
  using Pieces = std::map<int64_t, Users>;

  // The piece that begins there, cut from the one around it.
  Pieces::iterator piece_from(int64_t begin) {
    const auto next = pieces_.lower_bound(begin);
    if (next != pieces_.end() && next->first == begin) return next;
    Users users = next == pieces_.begin() ? Users{} : std::prev(next)->second;
    return pieces_.emplace_hint(next, begin, std::move(users));
  }

  Pieces pieces_;
};

// Beyond, waits that follow from others stay: to leave them out takes a bit for each pair of entries.
constexpr size_t kMaxReduced = 16 * 1024;

}  // namespace

std::vector<Waits> find_dependencies(const Graph& graph, const Plan& plan, std::span<const int> nodes) {
  if (!has_arena(plan.mode)) throw InvalidArgument("dependencies: a dynamic plan has no addresses");
  std::vector<Accesses> accesses;
  for (int id : nodes) accesses.emplace_back(graph, plan, graph.node(id), id);

  // Two consecutive steps are enough: a conflict with a node of the step before last is also one with the
  // same node of the last step. Going backwards, a conflict with a node that an entry already follows from is
  // transitive. So is every conflict except those with the last users of the same bytes.
  const size_t count = nodes.size();
  std::vector<Waits> waits(count);
  std::map<std::pair<int, int>, LastUsers> users;  // by device and variable
  const bool is_reduced = 2 * count <= kMaxReduced;
  Ancestors before(is_reduced ? 2 * count : 0);
  std::vector<int> conflicts;
  for (size_t i = 0; i < 2 * count; ++i) {
    const std::vector<Access>& all = accesses[i % count].all();
    conflicts.clear();
    for (const Access& access : all) {
      if (access.begin >= access.end) continue;
      users[{access.device, access.variable}].for_each_conflict(access,
                                                                [&](int item) { conflicts.push_back(item); });
    }
    for (const Access& access : all) {
      if (access.begin < access.end)
        users[{access.device, access.variable}].note(access, static_cast<int>(i));
    }
    std::ranges::sort(conflicts, std::greater<>());
    conflicts.erase(std::unique(conflicts.begin(), conflicts.end()), conflicts.end());
    for (const int conflict : conflicts) {
      const auto j = static_cast<size_t>(conflict);
      if (is_reduced && before.has(i, j)) continue;
      if (is_reduced) before.add(i, j);
      if (i < count) {
        waits[i].after.push_back(conflict);
      } else if (j < count) {
        waits[i - count].after_previous.push_back(conflict);
      }
    }
  }
  return waits;
}

}  // namespace headroom
