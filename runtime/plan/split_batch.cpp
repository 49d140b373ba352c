#include "runtime/plan/split_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "runtime/graph/update_gradients.h"

namespace headroom {
namespace {

// Numbers that differ by part: the golden ratio, as hashes of integers use it.
constexpr uint64_t kSeedStep = 0x9e3779b97f4a7c15;

// Gradients of a part wait until they have so many bytes, in f32, or are so many, and are added to those of
// the parts before in one launch: most are smaller than what a launch costs.
constexpr int64_t kJoinedSumBytes = 16 * kMiB;
constexpr size_t kJoinedSums = 64;

// What a value is to the parts.
enum class Role : uint8_t {
  kShared,     // the same for all parts
  kCut,        // read from outside: each part gets its rows
  kPerPart,    // computed for each part
  kPartShape,  // computed once, in the shape of a part
  kAfter,      // computed once, from what all parts together give
  kWhole,      // a variable that follows the batch and belongs to all parts, such as the order of an epoch
};

// The extents of `whole` are those of `part`, but for the first one, which is `parts` times as large.
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
      is_cut = is_cut || node_roles_[static_cast<size_t>(id)] == Role::kCut;
    }
    if (!is_cut) return "no input depends on the batch";
    return find_results();
  }

  void rewrite(Graph& graph) {
    of_part_.assign(roles_.size(), -1);
    std::vector<bool> is_placed(whole_.nodes().size());
    sums_.assign(roles_.size(), -1);
    pieces_.resize(roles_.size());
    graph_now_ = &graph;
    for (part_now_ = 0; part_now_ < parts_; ++part_now_) {
      const int part = part_now_;
      forget_cuts();
      for (const int id : needed_.pure) {
        const Node& node = whole_.node(id);
        const Role role = role_of_node(id);
        if (role == Role::kAfter) continue;
        is_placed[static_cast<size_t>(id)] = true;
        if (role == Role::kPerPart) {
          add_node_of_part(graph, id, part);
        } else if (part == 0) {
          if (role == Role::kPartShape) {
            add_in_shape_of_part(graph, id);
          } else {
            nodes_.push_back(node);
          }
        }
      }
      add_sums();
    }
    add_results();
    for (const int id : needed_.pure) {
      if (is_placed[static_cast<size_t>(id)]) continue;
      is_placed[static_cast<size_t>(id)] = true;
      nodes_.push_back(whole_.node(id));
    }
    std::vector<bool> is_update_of_step(whole_.nodes().size());
    for (const int id : needed_.updates) is_update_of_step[static_cast<size_t>(id)] = true;
    std::vector<bool> is_gone(roles_.size());
    for (size_t id = 0; id < roles_.size(); ++id) {
      is_gone[id] = roles_[id] == Role::kPerPart || roles_[id] == Role::kPartShape;
    }
    for (const Result& result : results_) is_gone[static_cast<size_t>(result.value)] = false;
    for (size_t i = 0; i < is_placed.size(); ++i) {
      if (is_placed[i]) continue;
      Node node = whole_.nodes()[i];
      // What no session needs may read what only parts have now.
      const bool reads_gone = std::any_of(node.inputs.begin(), node.inputs.end(),
                                          [&](int input) { return is_gone[static_cast<size_t>(input)]; });
      if (reads_gone) {
        for (const int output : node.outputs) is_gone[static_cast<size_t>(output)] = true;
        continue;
      }
      float* const scale = gradient_scale_of(node.op);
      if (sums_gradients_ && is_update_of_step[i] && scale != nullptr) *scale /= static_cast<float>(parts_);
      nodes_.push_back(std::move(node));
    }
    graph.replace_nodes(std::move(nodes_));
  }

 private:
  const TensorSpec& spec_of_part(size_t id) const { return part_.value(static_cast<int>(id)).spec; }
  Role& role(int id) { return roles_[static_cast<size_t>(id)]; }
  Role role(int id) const { return roles_[static_cast<size_t>(id)]; }
  Role role_of_node(int id) const { return node_roles_[static_cast<size_t>(id)]; }

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
    return std::any_of(whole_.nodes().begin(), whole_.nodes().end(), [&](const Node& node) {
      return std::holds_alternative<TakeBatch>(node.op) &&
             std::find(node.inputs.begin(), node.inputs.end(), id) != node.inputs.end();
    });
  }
  bool is_changed(size_t id) const {
    return std::any_of(whole_.nodes().begin(), whole_.nodes().end(), [&](const Node& node) {
      const std::vector<int> changed = mutated_inputs(node.op, node.inputs.size());
      return std::any_of(changed.begin(), changed.end(), [&](int position) {
        return node.inputs[static_cast<size_t>(position)] == static_cast<int>(id);
      });
    });
  }

  // Gradients that optimizers take, and the nodes that come behind all of them.
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
      const bool does = std::any_of(node.outputs.begin(), node.outputs.end(),
                                    [&](int output) { return leads[static_cast<size_t>(output)]; });
      if (!does) continue;
      for (const int input : node.inputs) leads[static_cast<size_t>(input)] = true;
    }
    std::vector<bool> is_after(whole_.values().size());
    for (const int id : needed_.pure) {
      const Node& node = whole_.node(id);
      const auto is_any = [&](const std::vector<int>& ids, const std::vector<bool>& set) {
        return std::any_of(ids.begin(), ids.end(), [&](int v) { return set[static_cast<size_t>(v)]; });
      };
      if (is_any(node.outputs, leads)) continue;
      if (!is_any(node.inputs, is_gradient_) && !is_any(node.inputs, is_after)) continue;
      is_behind_[static_cast<size_t>(id)] = true;
      for (const int output : node.outputs) is_after[static_cast<size_t>(output)] = true;
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
      return std::any_of(node.inputs.begin(), node.inputs.end(),
                         [&](int input) { return role(input) == wanted; });
    };
    const bool depends = reads(Role::kCut) || reads(Role::kPerPart) || reads(Role::kAfter);
    const auto differs = std::find_if(node.outputs.begin(), node.outputs.end(), [&](int output) {
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
      mine = is_behind_[static_cast<size_t>(id)] ? Role::kAfter : Role::kPerPart;
    } else if (is_in_part_shape) {
      mine = Role::kPartShape;
    }
    node_roles_[static_cast<size_t>(id)] = mine;
    for (const int output : node.outputs) role(output) = mine;
    return {};
  }

  // Values of the parts that something outside reads.
  std::string find_results() {
    std::vector<bool> is_result(roles_.size());
    const auto take = [&](int id) {
      if (role(id) == Role::kPerPart) is_result[static_cast<size_t>(id)] = true;
    };
    std::vector<bool> is_read_otherwise(roles_.size());
    for (const Value& fetch : targets_.front().fetches) {
      take(fetch.id);
      is_read_otherwise[static_cast<size_t>(fetch.id)] = true;
    }
    for (const int id : needed_.updates) {
      const Node& node = whole_.node(id);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        take(node.inputs[i]);
        if (!is_gradient_operand(node.op, i)) is_read_otherwise[static_cast<size_t>(node.inputs[i])] = true;
      }
    }
    for (const int id : needed_.pure) {
      const Node& node = whole_.node(id);
      if (role_of_node(id) != Role::kAfter) continue;
      for (const int input : node.inputs) {
        take(input);
        if (!std::holds_alternative<AllFinite>(node.op)) is_read_otherwise[static_cast<size_t>(input)] = true;
      }
    }
    // The optimizers divide by the number of parts themselves, if nobody else reads a gradient.
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
      results_.push_back({static_cast<int>(id), is_mean});
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

  Value new_value(Graph& graph, int id, int part, bool is_f32 = false) const {
    ValueInfo info = part_.value(id);
    info.name = fmt::format("{}/part{}", whole_.value(id).name, part + 1);
    info.device = whole_.value(id).device;
    if (is_f32) info.spec.dtype = DType::kF32;
    return graph.new_result(std::move(info));
  }

  // Each part cuts its own rows, when it needs them first.
  void forget_cuts() {
    for (size_t id = 0; id < roles_.size(); ++id) {
      if (roles_[id] == Role::kCut) of_part_[id] = -1;
    }
  }

  int input_of_part(int id) {
    if (role(id) == Role::kShared) return id;
    int& mine = of_part_[static_cast<size_t>(id)];
    if (role(id) == Role::kCut && mine < 0) {
      const Value value = new_value(*graph_now_, id, part_now_);
      const Shape& shape = value.shape();
      Slice cut{std::vector<int64_t>(static_cast<size_t>(shape.rank())), shape};
      cut.begin[0] = part_now_ * shape[0];
      nodes_.push_back(Node{cut, value.name(), {id}, {value.id}, whole_.value(id).device});
      mine = value.id;
    }
    return mine;
  }

  void add_in_shape_of_part(Graph& graph, int id) {
    Node node = part_.node(id);
    for (int& input : node.inputs) input = input_of_part(input);
    for (int& output : node.outputs) {
      const int made = new_value(graph, output, 0).id;
      of_part_[static_cast<size_t>(output)] = made;
      output = made;
    }
    node.name += "/part";
    nodes_.push_back(std::move(node));
  }

  void add_node_of_part(Graph& graph, int id, int part) {
    Node node = part_.node(id);
    if (Dropout* const dropout = std::get_if<Dropout>(&node.op)) {
      dropout->seed += kSeedStep * static_cast<uint64_t>(part);
    }
    for (int& input : node.inputs) input = input_of_part(input);
    for (int& output : node.outputs) {
      const int made = new_value(graph, output, part).id;
      of_part_[static_cast<size_t>(output)] = made;
      output = made;
    }
    node.name = fmt::format("{}/part{}", node.name, part + 1);
    nodes_.push_back(std::move(node));
    // Sums take over what is summed up so far, so some of one part's gradients are live beside them at most.
    for (const int output : whole_.node(id).outputs) collect(graph, output, part);
  }

  void collect(Graph& graph, int id, int part) {
    const auto result = std::find_if(results_.begin(), results_.end(),
                                     [&](const Result& other) { return other.value == id; });
    if (result == results_.end()) return;
    int made = of_part_[static_cast<size_t>(id)];
    if (!result->is_mean) {
      pieces_[static_cast<size_t>(id)].push_back(made);
      return;
    }
    int& sum = sums_[static_cast<size_t>(id)];
    if (part == 0) {
      sum = made;
      return;
    }
    const bool is_last = part + 1 == parts_ && !is_divided(id);
    // Sums have f32, and so has what the optimizer takes.
    if (is_last) graph.set_dtype(id, DType::kF32);
    const int next = is_last ? id : new_value(graph, id, part, true).id;
    PendingSums& pending = pending_sums_;
    pending.sums.push_back(sum);
    pending.of_part.push_back(made);
    pending.outputs.push_back(next);
    pending.bytes += graph.value(next).spec.bytes();
    sum = next;
    if (pending.bytes >= kJoinedSumBytes || pending.sums.size() == kJoinedSums) add_sums();
  }

  void add_sums() {
    PendingSums pending = std::exchange(pending_sums_, {});
    if (pending.sums.empty()) return;
    const ValueInfo& first = graph_now_->value(pending.outputs.front());
    std::vector<int> inputs = std::move(pending.sums);
    inputs.insert(inputs.end(), pending.of_part.begin(), pending.of_part.end());
    nodes_.push_back(
        Node{AddPairs{}, first.name + "/sum", std::move(inputs), std::move(pending.outputs), first.device});
  }

  // A mean that the optimizers do not take themselves.
  bool is_divided(int id) const { return !(sums_gradients_ && is_gradient_[static_cast<size_t>(id)]); }
  const std::string& device_of(int id) const { return whole_.value(id).device; }

  void add_results() {
    for (const Result& result : results_) {
      const std::string name = whole_.value(result.value).name + "/parts";
      const auto at = static_cast<size_t>(result.value);
      if (!result.is_mean) {
        nodes_.push_back(Node{Concat{0}, name, pieces_[at], {result.value}, device_of(result.value)});
        continue;
      }
      if (sums_[at] == result.value) continue;
      const Scale mean{1 / static_cast<float>(parts_)};
      nodes_.push_back(Node{mean, name, {sums_[at]}, {result.value}, device_of(result.value)});
    }
  }

  // Gradients of the present part that wait for one addition.
  struct PendingSums {
    std::vector<int> sums, of_part, outputs;  // of the parts before, of this one, of both
    int64_t bytes = 0;                        // of the outputs
  };
  struct Result {
    int value;
    bool is_mean;  // else rows
  };

  const Graph &whole_, &part_;
  const int parts_;
  const std::span<const Targets> targets_;
  NeededNodes needed_;
  std::vector<Role> roles_;  // by value
  std::vector<bool> is_gradient_;
  std::vector<Role> node_roles_;  // of their results
  std::vector<bool> is_behind_;   // by node: it comes behind all gradients
  std::vector<Result> results_;
  bool sums_gradients_ = false;

  std::vector<Node> nodes_;
  std::vector<int> of_part_;  // by value: the same of the present part
  std::vector<int> sums_;     // by value: over the parts so far
  std::vector<std::vector<int>> pieces_;
  PendingSums pending_sums_;
  int part_now_ = 0;
  Graph* graph_now_ = nullptr;
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
