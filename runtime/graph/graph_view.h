// A graph as the rules of fuse() see it: the readers and the maker of each value, and a way to replace
// nodes. Knows no rule.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/graph/graph.h"

namespace headroom {

class GraphView {
 public:
  // The caller fetches the values in `keep`.
  GraphView(const Graph& graph, std::span<const Value> keep);

  const Graph& graph() const { return graph_; }
  int node_count() const { return static_cast<int>(graph_.nodes().size()); }
  // The node's op if it is a T.
  template <typename T>
  const T* op(int node) const {
    return node < 0 ? nullptr : std::get_if<T>(&graph_.node(node).op);
  }
  int input(int node, size_t i) const { return graph_.node(node).inputs[i]; }
  int output(int node, size_t i = 0) const { return graph_.node(node).outputs[i]; }
  const Shape& shape(int value) const { return graph_.value(value).spec.shape; }
  bool kept(int value) const { return kept_[static_cast<size_t>(value)]; }
  // The nodes that read a value, in order; one that reads it twice comes twice.
  std::span<const int> readers(int value) const {
    const auto id = static_cast<size_t>(value);
    return std::span(readers_).subspan(first_reader_[id], first_reader_[id + 1] - first_reader_[id]);
  }
  // The node that makes a value; -1 for inputs and variables.
  int maker(int value) const { return makers_[static_cast<size_t>(value)]; }
  // The only reader of a value that is not fetched; -1 otherwise.
  int only_reader(int value) const;
  // Returns true if all of these nodes run on the same device; -1 stands for no node.
  bool on_one_device(std::initializer_list<int> nodes) const;
  // Returns true if a node in [first, last] changes one of `values`.
  bool changes(int first, int last, std::initializer_list<int> values) const;
  // Returns true if the node adds a vector along the last axis of `value`, as a layer adds its bias.
  bool adds_bias(int node, int value) const;

 private:
  const Graph& graph_;
  std::vector<int> readers_;          // readers of all values, in order of the values
  std::vector<size_t> first_reader_;  // by value, and the end
  std::vector<int> makers_;
  std::vector<bool> kept_;
};

// The nodes of a graph while some of them are replaced.
class Rewrite {
 public:
  explicit Rewrite(const Graph& graph) : graph_(graph) {}
  // Does nothing for -1.
  void drop(int node) {
    if (node >= 0) changed_[node].reset();
  }
  // Replaces the node at `place`, on the same device.
  void put(int place, Node node) {
    node.device = graph_.node(place).device;
    changed_[place] = std::move(node);
  }
  // Costs nothing if nothing is replaced. Throws InvalidArgument if a node would read a value before it is
  // made.
  void apply(Graph& graph);

 private:
  const Graph& graph_;
  std::unordered_map<int, std::optional<Node>> changed_;  // by position; nothing: dropped
};

// Applies a rule of this graph to each node: where its match(node) finds something, rewrite() replaces it.
// Returns how often.
template <typename Rule>
int rewrite_matches(const Rule& rule, Graph& graph) {
  Rewrite nodes(graph);
  int count = 0;
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    const auto found = rule.match(i);
    if (!found) continue;
    rule.rewrite(*found, nodes);
    ++count;
  }
  nodes.apply(graph);
  return count;
}

}  // namespace headroom
