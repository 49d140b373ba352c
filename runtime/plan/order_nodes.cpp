#include "runtime/plan/order_nodes.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace headroom {
namespace {

// Nodes that replicas or devices run together must keep their order.
bool has_fixed_turn(const Op& op) {
  return std::holds_alternative<AllReduce>(op) || std::holds_alternative<CopyToDevice>(op);
}

class Orderer {
 public:
  Orderer(const StepProblem& problem, const NeededNodes& nodes) : graph_(problem.graph), order_(nodes.pure) {
    const size_t values = graph_.values().size(), count = order_.size();
    root_of_.resize(values);
    maker_.assign(values, -1);
    reads_.assign(values, 0);
    for (size_t id = 0; id < values; ++id) root_of_[id] = static_cast<int>(id);
    waits_for_.assign(count, 0);
    after_.resize(count);
    int last_fixed = -1;
    for (size_t i = 0; i < count; ++i) {
      const Node& node = graph_.node(order_[i]);
      const auto wait_for = [&](int before) {
        after_[static_cast<size_t>(before)].push_back(static_cast<int>(i));
        ++waits_for_[i];
      };
      for (const int input : node.inputs) {
        if (maker_[static_cast<size_t>(input)] >= 0) wait_for(maker_[static_cast<size_t>(input)]);
        if (!is_reshape(node)) ++reads_[root(input)];
      }
      if (is_reshape(node))
        root_of_[static_cast<size_t>(node.outputs[0])] = static_cast<int>(root(node.inputs[0]));
      for (const int output : node.outputs) maker_[static_cast<size_t>(output)] = static_cast<int>(i);
      if (!has_fixed_turn(node.op)) continue;
      if (last_fixed >= 0) wait_for(last_fixed);
      last_fixed = static_cast<int>(i);
    }
    // What leaves the step is never freed.
    for (const Value& fetch : problem.targets.fetches) ++reads_[root(fetch.id)];
    for (const int id : nodes.updates) {
      for (const int input : graph_.node(id).inputs) ++reads_[root(input)];
    }
  }

  std::vector<int> run() {
    has_run_.assign(order_.size(), false);
    for (size_t i = 0; i < order_.size(); ++i) {
      if (waits_for_[i] == 0) ready_.push_back(static_cast<int>(i));
    }
    for (size_t i = 0; i < order_.size(); ++i) {
      if (has_run_[i]) continue;
      execute(static_cast<int>(i));
      for (int early = find_shrinking(); early >= 0; early = find_shrinking()) execute(early);
    }
    return std::move(result_);
  }

 private:
  static bool is_reshape(const Node& node) { return std::holds_alternative<Reshape>(node.op); }
  size_t root(int value) const { return static_cast<size_t>(root_of_[static_cast<size_t>(value)]); }

  // What is live more once the node has run.
  int64_t growth(int position) const {
    const Node& node = graph_.node(order_[static_cast<size_t>(position)]);
    if (is_reshape(node)) return 0;
    int64_t bytes = 0;
    for (const int output : node.outputs) {
      if (reads_[root(output)] > 0) bytes += graph_.value(output).spec.bytes();
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const size_t from = root(node.inputs[i]);
      int reads_here = 0;
      bool is_first = true;
      for (size_t j = 0; j < node.inputs.size(); ++j) {
        if (root(node.inputs[j]) != from) continue;
        ++reads_here;
        is_first = is_first && j >= i;
      }
      const ValueInfo& value = graph_.value(static_cast<int>(from));
      if (is_first && value.kind == ValueKind::kResult && reads_[from] == reads_here)
        bytes -= value.spec.bytes();
    }
    return bytes;
  }

  // The ready node that frees most; -1 if none frees more than it takes.
  int find_shrinking() const {
    int best = -1;
    int64_t least = 0;
    for (const int position : ready_) {
      const int64_t bytes = growth(position);
      if (bytes >= least) continue;
      least = bytes;
      best = position;
    }
    return best;
  }

  void execute(int position) {
    const Node& node = graph_.node(order_[static_cast<size_t>(position)]);
    has_run_[static_cast<size_t>(position)] = true;
    std::erase(ready_, position);
    result_.push_back(order_[static_cast<size_t>(position)]);
    if (!is_reshape(node)) {
      for (const int input : node.inputs) --reads_[root(input)];
    }
    for (const int next : after_[static_cast<size_t>(position)]) {
      if (--waits_for_[static_cast<size_t>(next)] == 0) ready_.push_back(next);
    }
  }

  const Graph& graph_;
  const std::vector<int>& order_;
  std::vector<int> root_of_, maker_, reads_;  // by value
  std::vector<int> waits_for_;                // by position in order_
  std::vector<std::vector<int>> after_;       // likewise
  std::vector<bool> has_run_;
  std::vector<int> ready_, result_;
};

}  // namespace

std::vector<StepState> order_nodes(const StepProblem& problem, std::span<const StepState> before, int64_t) {
  NeededNodes nodes = *before.back().nodes;
  nodes.pure = Orderer(problem, nodes).run();
  return {{std::make_shared<const NeededNodes>(std::move(nodes))}};
}

}  // namespace headroom
