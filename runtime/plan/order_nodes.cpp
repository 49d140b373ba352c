#include "runtime/plan/order_nodes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

namespace headroom {
namespace {

// Nodes that replicas or devices run together must keep their order.
bool has_fixed_turn(const Op& op) {
  return std::holds_alternative<AllReduce>(op) || std::holds_alternative<CopyToDevice>(op);
}

// Runs the nodes in their order, and after each all that are ready and free more than they take, those that
// free most first. The growth of each node is kept up to date, so that a step costs what its edges cost.
class Orderer {
 public:
  Orderer(const Graph& graph, const Targets& targets, const NeededNodes& nodes)
      : graph_(graph), order_(nodes.pure) {
    const size_t values = graph_.values().size(), count = order_.size();
    std::vector<int> maker(values, -1);
    root_of_.resize(values);
    readers_.resize(values);
    for (size_t id = 0; id < values; ++id) root_of_[id] = static_cast<int>(id);
    waits_for_.assign(count, 0);
    after_.resize(count);
    int last_fixed = -1;
    for (size_t i = 0; i < count; ++i) {
      const Node& node = graph_.node(order_[i]);
      const auto position = static_cast<int>(i);
      const auto wait_for = [&](int before) {
        after_[before].push_back(position);
        ++waits_for_[i];
      };
      for (const int input : node.inputs) {
        if (maker[input] >= 0) wait_for(maker[input]);
      }
      if (is_reshape(node)) {
        root_of_[node.outputs[0]] = static_cast<int>(root(node.inputs[0]));
      } else {
        for_each_root_read(node, [&](size_t from) { readers_[from].add(position); });
      }
      for (const int output : node.outputs) maker[output] = position;
      if (!has_fixed_turn(node.op)) continue;
      if (last_fixed >= 0) wait_for(last_fixed);
      last_fixed = position;
    }
    // Values that leave the step are never freed.
    for (const Value& fetch : targets.fetches) readers_[root(fetch.id)].stays = true;
    for (const int id : nodes.updates) {
      for (const int input : graph_.node(id).inputs) readers_[root(input)].stays = true;
    }
  }

  std::vector<int> run() {
    const size_t count = order_.size();
    has_run_.assign(count, false);
    growth_.assign(count, 0);
    turn_.assign(count, kNotReady);
    for (size_t i = 0; i < count; ++i) {
      const Node& node = graph_.node(order_[i]);
      if (is_reshape(node)) continue;
      for (const int output : node.outputs) {
        const Readers& readers = readers_[root(output)];
        if (readers.count > 0 || readers.stays) growth_[i] += graph_.value(output).spec.bytes();
      }
    }
    for (size_t from = 0; from < readers_.size(); ++from) note_last_reader(from);
    for (size_t i = 0; i < count; ++i) {
      if (waits_for_[i] == 0) make_ready(static_cast<int>(i));
    }
    for (size_t i = 0; i < count; ++i) {
      if (has_run_[i]) continue;
      execute(static_cast<int>(i));
      while (!shrinking_.empty()) execute(shrinking_.begin()->position);
    }
    return std::move(result_);
  }

 private:
  static constexpr int kNotReady = -1;

  // The nodes that read a value or reshapes of it and have not run.
  struct Readers {
    int count = 0;
    bool stays = false;     // the value is also needed afterwards
    int64_t positions = 0;  // their sum, so that the last one is known

    void add(int position) {
      ++count;
      positions += position;
    }
    void remove(int position) {
      --count;
      positions -= position;
    }
  };
  // A ready node that frees more than it takes.
  struct Shrinking {
    int64_t growth;
    int turn, position;
    auto operator<=>(const Shrinking&) const = default;
  };

  static bool is_reshape(const Node& node) { return std::holds_alternative<Reshape>(node.op); }
  size_t root(int value) const { return static_cast<size_t>(root_of_[value]); }

  // Calls visit(root) once for each of the values that the node reads.
  template <class Visit>
  void for_each_root_read(const Node& node, const Visit& visit) {
    roots_.clear();
    for (const int input : node.inputs) roots_.push_back(root(input));
    std::ranges::sort(roots_);
    roots_.erase(std::unique(roots_.begin(), roots_.end()), roots_.end());
    for (const size_t from : roots_) visit(from);
  }

  // The last reader of a value frees it.
  void note_last_reader(size_t from) {
    const Readers& readers = readers_[from];
    const ValueInfo& value = graph_.value(static_cast<int>(from));
    if (readers.count != 1 || readers.stays || value.kind != ValueKind::kResult) return;
    const auto position = static_cast<int>(readers.positions);
    shrinking_.erase(entry_of(position));
    growth_[position] -= value.spec.bytes();
    enter_if_shrinking(position);
  }

  Shrinking entry_of(int position) const { return {growth_[position], turn_[position], position}; }
  void enter_if_shrinking(int position) {
    if (turn_[position] != kNotReady && growth_[position] < 0) {
      shrinking_.insert(entry_of(position));
    }
  }
  void make_ready(int position) {
    turn_[position] = next_turn_++;
    enter_if_shrinking(position);
  }

  void execute(int position) {
    const Node& node = graph_.node(order_[position]);
    has_run_[position] = true;
    shrinking_.erase(entry_of(position));
    result_.push_back(order_[position]);
    if (!is_reshape(node)) {
      for_each_root_read(node, [&](size_t from) {
        readers_[from].remove(position);
        note_last_reader(from);
      });
    }
    for (const int next : after_[position]) {
      if (--waits_for_[next] == 0) make_ready(next);
    }
  }

  const Graph& graph_;
  const std::vector<int>& order_;
  std::vector<int> root_of_;      // by value
  std::vector<Readers> readers_;  // by value that is no reshape
  std::vector<int> waits_for_;    // by position in order_
  std::vector<std::vector<int>> after_;
  std::vector<int64_t> growth_;  // growth of the live bytes once the node has run
  std::vector<int> turn_;        // in which nodes became ready
  std::vector<bool> has_run_;
  int next_turn_ = 0;
  std::set<Shrinking> shrinking_;
  std::vector<size_t> roots_;
  std::vector<int> result_;
};

}  // namespace

NeededNodes order_nodes(const Graph& graph, const Targets& targets, const NeededNodes& nodes) {
  return {Orderer(graph, targets, nodes).run(), nodes.updates};
}

}  // namespace headroom
