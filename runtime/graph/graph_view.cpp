#include "runtime/graph/graph_view.h"

#include <algorithm>
#include <numeric>

namespace headroom {

GraphView::GraphView(const Graph& graph, std::span<const Value> keep)
    : graph_(graph),
      first_reader_(graph.values().size() + 1),
      makers_(graph.values().size(), -1),
      kept_(graph.values().size()) {
  for (const Node& node : graph.nodes()) {
    for (const int value : node.inputs) ++first_reader_[static_cast<size_t>(value) + 1];
  }
  std::partial_sum(first_reader_.begin(), first_reader_.end(), first_reader_.begin());
  readers_.resize(first_reader_.back());
  std::vector<size_t> next(first_reader_.begin(), first_reader_.end() - 1);
  for (int i = 0; i < node_count(); ++i) {
    for (const int value : graph.node(i).inputs) readers_[next[static_cast<size_t>(value)]++] = i;
    for (const int value : graph.node(i).outputs) makers_[static_cast<size_t>(value)] = i;
  }
  for (const Value& value : keep) kept_[static_cast<size_t>(value.id)] = true;
}

int GraphView::only_reader(int value) const {
  return !kept(value) && readers(value).size() == 1 ? readers(value)[0] : -1;
}

bool GraphView::on_one_device(std::initializer_list<int> nodes) const {
  const std::string* device = nullptr;
  for (int id : nodes) {
    if (id < 0) continue;
    if (device != nullptr && *device != graph_.node(id).device) return false;
    device = &graph_.node(id).device;
  }
  return true;
}

bool GraphView::changes(int first, int last, std::initializer_list<int> values) const {
  for (int node = first; node <= last; ++node) {
    for (int i : mutated_inputs(graph_.node(node).op, graph_.node(node).inputs.size())) {
      const int changed = input(node, static_cast<size_t>(i));
      if (std::ranges::find(values, changed) != values.end()) return true;
    }
  }
  return false;
}

bool GraphView::adds_bias(int node, int value) const {
  const auto* add = op<Binary>(node);
  return add && add->kind == BinaryKind::kAdd && input(node, 0) == value &&
         shape(input(node, 1)) == Shape{shape(value).last()};
}

void Rewrite::apply(Graph& graph) {
  if (changed_.empty()) return;
  std::vector<Node> rest;
  rest.reserve(graph.nodes().size());
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const auto changed = changed_.find(static_cast<int>(i));
    if (changed == changed_.end()) {
      rest.push_back(graph.nodes()[i]);
    } else if (changed->second) {
      rest.push_back(std::move(*changed->second));
    }
  }
  graph.replace_nodes(std::move(rest));
}

}  // namespace headroom
