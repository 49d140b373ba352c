#include "runtime/plan/split_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/bytes.h"

namespace headroom {
namespace {

// Sums of a part wait until they have so many bytes, or are so many, and are added to those of the parts
// before in one launch: most are smaller than what a launch costs.
constexpr int64_t kJoinedSumBytes = 16 * kMiB;
constexpr size_t kJoinedSums = 64;

class Emitter {
 public:
  Emitter(Graph& graph, const SplitRegion& region)
      : graph_(graph),
        region_(region),
        of_part_(region.values.size(), -1),
        sums_(region.values.size(), -1),
        pieces_(region.values.size()) {}

  std::vector<Node> run() {
    for (part_ = 0; part_ < region_.parts; ++part_) {
      forget_cuts();
      for (const int id : region_.order) {
        const Role role = region_.nodes[id];
        if (role == Role::kPerPart) {
          add_node(id);
        } else if (part_ == 0 && role == Role::kPartShape) {
          add_in_shape_of_part(id);
        } else if (part_ == 0 && role != Role::kAfter) {
          nodes_.push_back(graph_.node(id));
        }
      }
      add_sums();
    }
    for (const auto& [value, join] : region_.results) add_result(value, join);
    for (const int id : region_.order) {
      if (region_.nodes[id] == Role::kAfter) nodes_.push_back(graph_.node(id));
    }
    return std::move(nodes_);
  }

 private:
  Role role(int value) const { return region_.values[value]; }
  const std::string& device_of(int value) const { return graph_.value(value).device; }

  Value new_value(int id, const TensorSpec& spec) {
    ValueInfo info = graph_.value(id);
    info.name = fmt::format("{}/part{}", info.name, part_ + 1);
    info.spec = spec;
    info.kind = ValueKind::kResult;
    info.initializer = {};
    return graph_.new_result(std::move(info));
  }
  Value new_value(int id) { return new_value(id, region_.spec(id, part_)); }

  // Each part cuts its own rows, when it needs them first.
  void forget_cuts() {
    for (size_t id = 0; id < of_part_.size(); ++id) {
      if (region_.values[id] == Role::kCut) of_part_[id] = -1;
    }
  }

  int input_of_part(int id) {
    if (role(id) == Role::kShared) return id;
    int& mine = of_part_[id];
    if (role(id) == Role::kCut && mine < 0) {
      const Value value = new_value(id);
      Slice cut{std::vector<int64_t>(static_cast<size_t>(value.shape().rank())), value.shape()};
      cut.begin[0] = graph_.value(id).spec.shape[0] * part_ / region_.parts;
      nodes_.push_back(Node{cut, value.name(), {id}, {value.id}, device_of(id)});
      mine = value.id;
    }
    return mine;
  }

  Node part_of(int id) {
    Node node = region_.node(id, part_);
    for (int& input : node.inputs) input = input_of_part(input);
    for (int& output : node.outputs) {
      const int made = new_value(output).id;
      of_part_[output] = made;
      output = made;
    }
    return node;
  }

  void add_in_shape_of_part(int id) {
    Node node = part_of(id);
    node.name += "/part";
    nodes_.push_back(std::move(node));
  }

  void add_node(int id) {
    Node node = part_of(id);
    node.name = fmt::format("{}/part{}", node.name, part_ + 1);
    nodes_.push_back(std::move(node));
    // Sums take over what is summed up so far, so some of one part's are live beside them at most.
    for (const int output : graph_.node(id).outputs) collect(output);
  }

  void collect(int id) {
    const auto result =
        std::ranges::find_if(region_.results, [&](const auto& other) { return other.first == id; });
    if (result == region_.results.end()) return;
    const int made = of_part_[id];
    if (result->second == Join::kRows) {
      pieces_[id].push_back(made);
      return;
    }
    int& sum = sums_[id];
    if (part_ == 0) {
      sum = made;
      return;
    }
    TensorSpec spec = region_.spec(id, part_);
    if (region_.sums_in_f32) spec.dtype = DType::kF32;
    const bool is_last = part_ + 1 == region_.parts && result->second == Join::kSum;
    // The optimizer reads gradients of the type of the sums.
    if (is_last) graph_.set_dtype(id, spec.dtype);
    const int next = is_last ? id : new_value(id, spec).id;
    if (spec.dtype != DType::kF32) {
      nodes_.push_back(Node{Binary{BinaryKind::kAdd},
                            fmt::format("{}/sum{}", graph_.value(id).name, part_ + 1),
                            {sum, made},
                            {next},
                            device_of(id)});
    } else {
      pending_.sums.push_back(sum);
      pending_.of_part.push_back(made);
      pending_.outputs.push_back(next);
      pending_.bytes += spec.bytes();
    }
    sum = next;
    if (pending_.bytes >= kJoinedSumBytes || pending_.sums.size() == kJoinedSums) add_sums();
  }

  void add_sums() {
    PendingSums pending = std::exchange(pending_, {});
    if (pending.sums.empty()) return;
    const ValueInfo& first = graph_.value(pending.outputs.front());
    std::vector<int> inputs = std::move(pending.sums);
    for (const int made : pending.of_part) inputs.push_back(made);
    nodes_.push_back(
        Node{AddPairs{}, first.name + "/sum", std::move(inputs), std::move(pending.outputs), first.device});
  }

  void add_result(int value, Join join) {
    const std::string name = graph_.value(value).name + "/parts";
    if (join == Join::kRows) {
      nodes_.push_back(Node{Concat{0}, name, pieces_[value], {value}, device_of(value)});
    } else if (join == Join::kMean) {
      const Scale mean{1 / static_cast<float>(region_.parts)};
      nodes_.push_back(Node{mean, name, {sums_[value]}, {value}, device_of(value)});
    }
  }

  // Sums of the present part, waiting for one addition.
  struct PendingSums {
    std::vector<int> sums, of_part,
        outputs;        // sums of the earlier parts, operands of this one, results of both
    int64_t bytes = 0;  // bytes of the outputs
  };

  Graph& graph_;
  const SplitRegion& region_;
  std::vector<Node> nodes_;
  std::vector<int> of_part_;  // by value: the same of the present part
  std::vector<int> sums_;     // by value: over the parts so far
  std::vector<std::vector<int>> pieces_;
  PendingSums pending_;
  int part_ = 0;
};

}  // namespace

std::vector<Node> split_rows(Graph& graph, const SplitRegion& region) {
  return Emitter(graph, region).run();
}

}  // namespace headroom
