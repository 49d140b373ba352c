#include "runtime/plan/split_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "runtime/graph/update_gradients.h"
#include "runtime/plan/split_rows.h"

namespace headroom {
namespace {

// Numbers that differ by part: the golden ratio, as hashes of integers use it.
constexpr uint64_t kSeedStep = 0x9e3779b97f4a7c15;

// Returns true if the extents of `whole` are those of `part`, except for the first one, which is `parts`
// times as large.
bool is_cut_of(const TensorSpec& whole, const TensorSpec& part, int parts) {
  const Shape &a = whole.shape, &b = part.shape;
  if (whole.dtype != part.dtype || a.rank() != b.rank() || a.rank() == 0) return false;
  if (a[0] != parts * b[0]) return false;
  for (int axis = 1; axis < a.rank(); ++axis) {
    if (a[axis] != b[axis]) return false;
  }
  return true;
}

class Splitter {
 public:
  Splitter(const Graph& whole, const Graph& part, int parts, std::span<const Targets> targets)
      : whole_(whole), part_(part), parts_(parts), targets_(targets) {}

  // Fills the roles; the reason why the step cannot be split, or empty.
  std::string find_roles() {
    if (parts_ < 2) return "a batch has two parts or more";
    if (std::string reason = compare(); !reason.empty()) return reason;
    needed_ = find_needed_nodes(whole_, targets_.front());
    roles_.assign(whole_.values().size(), Role::kShared);
    find_gradients();
    node_roles_.assign(whole_.nodes().size(), Role::kShared);
    bool is_cut = false;
    for (size_t id = 0; id < roles_.size(); ++id) {
      const ValueInfo& value = whole_.value(static_cast<int>(id));
      if (value.kind == ValueKind::kResult || value.spec == spec_of_part(id)) continue;
      // A table that a step takes its rows from, or is it one row for each of the batch, such as positions?
      if (value.kind == ValueKind::kVariable && (is_table(static_cast<int>(id)) || is_changed(id))) {
        roles_[id] = Role::kWhole;
        continue;
      }
      if (!is_cut_of(value.spec, spec_of_part(id), parts_)) return does_not_follow(value);
      roles_[id] = Role::kCut;
      is_cut = true;
    }
    for (const int id : needed_.pure) {
      if (std::string reason = find_role(id); !reason.empty()) return reason;
      is_cut = is_cut || node_roles_[id] == Role::kCut;
    }
    if (!is_cut) return "no input depends on the batch";
    return find_results();
  }

  void rewrite(Graph& graph) {
    SplitRegion region{.parts = parts_,
                       .order = needed_.pure,
                       .values = roles_,
                       .nodes = node_roles_,
                       .results = results_,
                       .sums_in_f32 = true};
    region.spec = [&](int value, int) { return spec_of_part(static_cast<size_t>(value)); };
    region.node = [&](int id, int part) {
      Node node = part_.node(id);
      if (Dropout* const dropout = std::get_if<Dropout>(&node.op)) {
        dropout->seed += kSeedStep * static_cast<uint64_t>(part);
      }
      if (RandomUniform* const drawn = std::get_if<RandomUniform>(&node.op)) {
        drawn->seed += kSeedStep * static_cast<uint64_t>(part);
      }
      return node;
    };
    std::vector<Node> nodes = split_rows(graph, region);
    std::vector<bool> is_placed(whole_.nodes().size());
    for (const int id : needed_.pure) is_placed[id] = true;
    std::vector<bool> is_update_of_step(whole_.nodes().size());
    for (const int id : needed_.updates) is_update_of_step[id] = true;
    std::vector<bool> is_gone(roles_.size());
    for (size_t id = 0; id < roles_.size(); ++id) {
      is_gone[id] = roles_[id] == Role::kPerPart || roles_[id] == Role::kPartShape;
    }
    for (const auto& [value, join] : results_) is_gone[value] = false;
    for (size_t i = 0; i < is_placed.size(); ++i) {
      if (is_placed[i]) continue;
      Node node = whole_.nodes()[i];
      // Nodes that no session needs may read values that now exist only in the parts.
      const bool reads_gone = std::ranges::any_of(node.inputs, [&](int input) { return is_gone[input]; });
      if (reads_gone) {
        for (const int output : node.outputs) is_gone[output] = true;
        continue;
      }
      float* const scale = gradient_scale_of(node.op);
      if (sums_gradients_ && is_update_of_step[i] && scale != nullptr) *scale /= static_cast<float>(parts_);
      nodes.push_back(std::move(node));
    }
    graph.replace_nodes(std::move(nodes));
  }

 private:
  const TensorSpec& spec_of_part(size_t id) const { return part_.value(static_cast<int>(id)).spec; }
  Role& role(int id) { return roles_[id]; }
  Role role(int id) const { return roles_[id]; }
  Role role_of_node(int id) const { return node_roles_[id]; }

  std::string compare() const {
    const std::string differs = "the graph of a part has other nodes than that of the whole batch";
    if (whole_.nodes().size() != part_.nodes().size() || whole_.values().size() != part_.values().size())
      return differs;
    for (size_t i = 0; i < whole_.nodes().size(); ++i) {
      const Node &a = whole_.nodes()[i], &b = part_.nodes()[i];
      if (a.op.index() != b.op.index() || a.inputs != b.inputs || a.outputs != b.outputs) return differs;
    }
    for (size_t i = 0; i < whole_.values().size(); ++i) {
      const ValueInfo &a = whole_.values()[i], &b = part_.values()[i];
      if (a.kind != b.kind || a.spec.dtype != b.spec.dtype) return differs;
    }
    return {};
  }

  bool is_table(int id) const {
    return std::ranges::any_of(whole_.nodes(), [&](const Node& node) {
      return std::holds_alternative<TakeBatch>(node.op) &&
             std::ranges::find(node.inputs, id) != node.inputs.end();
    });
  }
  bool is_changed(size_t id) const {
    return std::ranges::any_of(whole_.nodes(), [&](const Node& node) {
      const std::vector<int> changed = mutated_inputs(node.op, node.inputs.size());
      return std::ranges::any_of(changed,
                                 [&](int position) { return node.inputs[position] == static_cast<int>(id); });
    });
  }

  // Finds the gradients of optimizers, and the nodes that come after all of them.
  void find_gradients() {
    std::vector<bool> leads(whole_.values().size());  // to a gradient
    is_gradient_.assign(whole_.values().size(), false);
    for (const int id : needed_.updates) {
      const Node& node = whole_.node(id);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (!is_gradient_operand(node.op, i)) continue;
        const auto value = static_cast<size_t>(node.inputs[i]);
        is_gradient_[value] = leads[value] = true;
      }
    }
    is_behind_.assign(whole_.nodes().size(), false);
    for (size_t i = needed_.pure.size(); i-- > 0;) {
      const Node& node = whole_.node(needed_.pure[i]);
      const bool does = std::ranges::any_of(node.outputs, [&](int output) { return leads[output]; });
      if (!does) continue;
      for (const int input : node.inputs) leads[input] = true;
    }
    std::vector<bool> is_after(whole_.values().size());
    for (const int id : needed_.pure) {
      const Node& node = whole_.node(id);
      const auto is_any = [&](const std::vector<int>& ids, const std::vector<bool>& set) {
        return std::ranges::any_of(ids, [&](int v) { return set[v]; });
      };
      if (is_any(node.outputs, leads)) continue;
      if (!is_any(node.inputs, is_gradient_) && !is_any(node.inputs, is_after)) continue;
      is_behind_[id] = true;
      for (const int output : node.outputs) is_after[output] = true;
    }
  }

  static std::string does_not_follow(const ValueInfo& value) {
    return fmt::format("the shape of {} does not follow the batch", value.name);
  }

  std::string find_role(int id) {
    const Node& node = whole_.node(id);
    if (std::holds_alternative<AllReduce>(node.op) || std::holds_alternative<CopyToDevice>(node.op)) {
      return "the step uses several devices";
    }
    const auto reads = [&](Role wanted) {
      return std::ranges::any_of(node.inputs, [&](int input) { return role(input) == wanted; });
    };
    const bool depends = reads(Role::kCut) || reads(Role::kPerPart) || reads(Role::kAfter);
    const auto differs = std::ranges::find_if(node.outputs, [&](int output) {
      return whole_.value(output).spec != spec_of_part(static_cast<size_t>(output));
    });
    const bool is_in_part_shape = reads(Role::kPartShape) || differs != node.outputs.end();
    Role mine = Role::kShared;
    if (std::holds_alternative<TakeBatch>(node.op) && !depends) {
      if (differs != node.outputs.end()) {
        const ValueInfo& value = whole_.value(*differs);
        if (!is_cut_of(value.spec, spec_of_part(static_cast<size_t>(*differs)), parts_))
          return does_not_follow(value);
        mine = Role::kCut;
      }
    } else if (reads(Role::kWhole)) {
      return fmt::format("{} reads all of the batch", node.name);
    } else if (depends) {
      mine = is_behind_[id] ? Role::kAfter : Role::kPerPart;
    } else if (is_in_part_shape) {
      mine = std::holds_alternative<RandomUniform>(node.op) ? Role::kPerPart : Role::kPartShape;
    }
    const auto* custom = std::get_if<Custom>(&node.op);
    if (custom && !custom->op->splits_batch && (mine == Role::kPerPart || mine == Role::kPartShape)) {
      return fmt::format("{} may compute one row of the batch from others", node.name);
    }
    node_roles_[id] = mine;
    for (const int output : node.outputs) role(output) = mine;
    return {};
  }

  // Values of the parts that something outside reads.
  std::string find_results() {
    std::vector<bool> is_result(roles_.size());
    const auto take = [&](int id) {
      if (role(id) == Role::kPerPart) is_result[id] = true;
    };
    std::vector<bool> is_read_otherwise(roles_.size());
    for (const Value& fetch : targets_.front().fetches) {
      take(fetch.id);
      is_read_otherwise[fetch.id] = true;
    }
    for (const int id : needed_.updates) {
      const Node& node = whole_.node(id);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        take(node.inputs[i]);
        if (!is_gradient_operand(node.op, i)) is_read_otherwise[node.inputs[i]] = true;
      }
    }
    for (const int id : needed_.pure) {
      const Node& node = whole_.node(id);
      if (role_of_node(id) != Role::kAfter) continue;
      for (const int input : node.inputs) {
        take(input);
        if (!std::holds_alternative<AllFinite>(node.op)) is_read_otherwise[input] = true;
      }
    }
    // The optimizers divide by the number of parts themselves, if no other node reads a gradient.
    sums_gradients_ = true;
    for (size_t id = 0; id < roles_.size(); ++id) {
      if (is_gradient_[id] && (is_read_otherwise[id] || roles_[id] != Role::kPerPart))
        sums_gradients_ = false;
    }
    for (size_t id = 0; id < roles_.size(); ++id) {
      if (!is_result[id]) continue;
      const ValueInfo& value = whole_.value(static_cast<int>(id));
      const bool is_short_sum = is_half(value.spec.dtype) && sums_gradients_ && is_gradient_[id];
      const bool is_float = value.spec.dtype == DType::kF32 || is_short_sum;
      const bool is_mean = is_float && value.spec == spec_of_part(id);
      if (!is_mean && !is_cut_of(value.spec, spec_of_part(id), parts_)) {
        return fmt::format("{} is neither a mean over the batch nor has its rows", value.name);
      }
      // The optimizers divide sums themselves.
      const Join join = !is_mean                              ? Join::kRows
                        : sums_gradients_ && is_gradient_[id] ? Join::kSum
                                                              : Join::kMean;
      results_.push_back({static_cast<int>(id), join});
    }
    // Nodes of the parts make these values for other sessions as well.
    for (size_t i = 1; i < targets_.size(); ++i) {
      const NeededNodes other = find_needed_nodes(whole_, targets_[i]);
      for (const int id : other.pure) {
        const Role mine = role_of_node(id);
        if (mine == Role::kPerPart || mine == Role::kPartShape) return "another session needs its values";
      }
    }
    return {};
  }

  const Graph &whole_, &part_;
  const int parts_;
  const std::span<const Targets> targets_;
  NeededNodes needed_;
  std::vector<Role> roles_;  // by value
  std::vector<bool> is_gradient_;
  std::vector<Role> node_roles_;  // roles of their results
  std::vector<bool> is_behind_;   // by node: true if it comes after all gradients
  std::vector<std::pair<int, Join>> results_;
  bool sums_gradients_ = false;
};

}  // namespace

std::string why_not_split(const Graph& whole, const Graph& part, int parts,
                          std::span<const Targets> targets) {
  return Splitter(whole, part, parts, targets).find_roles();
}

void split_batch(Graph& whole, const Graph& part, int parts, std::span<const Targets> targets) {
  const std::unique_ptr<Graph> before = whole.copy();
  Splitter splitter(*before, part, parts, targets);
  if (const std::string reason = splitter.find_roles(); !reason.empty()) {
    throw InvalidArgument(fmt::format("the batch cannot be split: {}", reason));
  }
  splitter.rewrite(whole);
}

}  // namespace headroom
