#include "runtime/graph/data_flow.h"

#include <numeric>

namespace headroom {

Predecessors find_predecessors(const Graph& graph, std::span<const int> nodes) {
  const size_t values = graph.values().size();
  std::vector<size_t> source(values);  // the value that a reshape shows, else the value itself
  std::iota(source.begin(), source.end(), size_t{0});
  std::vector<int> writer(values, -1);               // by source: who wrote it last
  std::vector<std::vector<size_t>> readers(values);  // and who has read it since
  const auto source_of = [&](int value) -> size_t& { return source[static_cast<size_t>(value)]; };

  Predecessors predecessors(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] < 0) {
      predecessors.finish_item();
      continue;
    }
    const Node& node = graph.node(nodes[i]);
    if (std::holds_alternative<Reshape>(node.op)) {
      source_of(node.outputs[0]) = source_of(node.inputs[0]);
      predecessors.finish_item();
      continue;
    }
    for (int input : node.inputs) {
      const size_t from = source_of(input);
      if (writer[from] >= 0) predecessors.add(static_cast<size_t>(writer[from]));
      readers[from].push_back(i);
    }
    for (int position : mutated_inputs(node.op, node.inputs.size())) {
      const size_t variable = source_of(node.inputs[static_cast<size_t>(position)]);
      for (size_t reader : readers[variable]) {
        if (reader != i) predecessors.add(reader);
      }
      readers[variable].clear();
      writer[variable] = static_cast<int>(i);
    }
    for (int output : node.outputs) writer[static_cast<size_t>(output)] = static_cast<int>(i);
    predecessors.finish_item();
  }
  return predecessors;
}

std::vector<bool> read_values(const Graph& graph) {
  std::vector<bool> is_read(graph.values().size());
  for (const Node& node : graph.nodes()) {
    for (const int input : node.inputs) is_read[static_cast<size_t>(input)] = true;
  }
  return is_read;
}

}  // namespace headroom
