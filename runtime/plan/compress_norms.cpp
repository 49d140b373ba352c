#include "runtime/plan/compress_norms.h"

#include <optional>
#include <utility>
#include <vector>

#include "runtime/graph/graph_view.h"

namespace headroom {
namespace {

// Node ids.
struct CompressibleNorm {
  int norm, gradient;
};

class CompressibleNorms : private GraphView {
 public:
  using GraphView::GraphView;

  std::optional<CompressibleNorm> match(int norm) const {
    const auto* apply = op<BatchNormApply>(norm);
    if (!apply || apply->compresses || apply->compressed) return {};
    const int x = input(norm, 0), mean = input(norm, 3), variance = input(norm, 4);
    if (maker(x) < 0 || kept(x)) return {};
    int gradient = -1;
    for (const int reader : readers(x)) {
      if (reader <= norm) continue;
      const auto* found = op<BatchNormGrad>(reader);
      const bool is_its_own = found && gradient < 0 && found->epsilon == apply->epsilon &&
                              input(reader, 1) == x && input(reader, 3) == mean &&
                              input(reader, 4) == variance;
      if (!is_its_own) return {};
      gradient = reader;
    }
    if (gradient < 0 || !on_one_device({norm, gradient})) return {};
    if (changes(norm, gradient, {input(norm, 1), input(norm, 2), mean, variance})) return {};
    return CompressibleNorm{norm, gradient};
  }
};

bool is_of_backward_pass(const Graph& graph, const Node& node) {
  return !node.outputs.empty() && graph.value(node.outputs[0]).backward;
}

// Lets the gradients after relu and a residual read a bit for each of the norm's results instead of the
// results.
void mark_branches(Graph& graph) {
  std::vector<Node> nodes(graph.nodes().begin(), graph.nodes().end());
  std::vector<int> maker(graph.values().size(), -1);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const int output : nodes[i].outputs) maker[output] = static_cast<int>(i);
    auto* const branches = std::get_if<BranchGrad>(&nodes[i].op);
    const int made_by = branches ? maker[nodes[i].inputs[1]] : -1;
    if (made_by < 0 || branches->marked) continue;
    Node& norm = nodes[made_by];
    auto* const apply = std::get_if<BatchNormApply>(&norm.op);
    const Shape& shape = graph.value(nodes[i].inputs[1]).spec.shape;
    if (!apply || apply->marks || apply->compressed || shape.last() % 8 != 0 ||
        norm.device != nodes[i].device)
      continue;
    const Shape marks = shape.with(shape.rank() - 1, shape.last() / 8);
    apply->marks = branches->marked = true;
    norm.outputs.push_back(graph.new_result({.name = norm.name + "/marks", .spec = {DType::kU8, marks}}).id);
    nodes[i].inputs[1] = norm.outputs.back();
  }
  graph.replace_nodes(std::move(nodes));
}

// Convolutions with the norms after them, and node ids.
class NormsToCompress : private GraphView {
 public:
  using GraphView::GraphView;

  std::optional<Node> restorer_of(int norm) const {
    const auto* apply = op<BatchNormApply>(norm);
    if (!apply || apply->compressed || maker(input(norm, 0)) < 0) return {};
    if (apply->compresses && graph().node(norm).inputs.size() == 5) return {};  // the codes restore it
    const int conv = maker(input(norm, 0));
    const auto* conv2d = op<Conv2d>(conv);
    if (!conv2d || conv2d->groups != 1 || conv2d->stride != Pair{1, 1} || conv2d->padding != Pair{0, 0})
      return {};
    const Shape filter = conv_filter_shape(*conv2d, shape(input(conv, 1)));
    const DType type = graph().value(output(norm)).spec.dtype;
    const bool is_of_one_type = dtype(input(conv, 0)) == type && dtype(input(conv, 1)) == type;
    if (filter[0] != 1 || filter[1] != 1 || !is_of_one_type || !on_one_device({conv, norm})) return {};
    Node node{ConvNormApply{apply->epsilon, apply->relu, conv2d->filter_by_result},
              graph().node(norm).name + "/restore",
              graph().node(conv).inputs,
              {},
              graph().node(norm).device};
    const std::vector<int>& operands = graph().node(norm).inputs;
    node.inputs.insert(node.inputs.end(), operands.begin() + 1, operands.end());
    return node;
  }

 private:
  DType dtype(int value) const { return graph().value(value).spec.dtype; }
};

void add_restorers(Graph& graph, std::span<const Value> fetches) {
  const NormsToCompress norms(graph, fetches);
  std::vector<Node> nodes;
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    std::optional<Node> restorer = norms.restorer_of(i);
    nodes.push_back(graph.node(i));
    if (!restorer) continue;
    ValueInfo info = graph.value(graph.node(i).outputs[0]);
    info.name += "/restored";
    info.backward = true;
    restorer->outputs = {graph.new_result(std::move(info)).id};
    nodes.push_back(std::move(*restorer));
  }
  graph.replace_nodes(std::move(nodes));
}

}  // namespace

int compress_norms(Graph& graph, std::span<const Value> fetches) {
  std::vector<Node> nodes(graph.nodes().begin(), graph.nodes().end());
  const CompressibleNorms norms(graph, fetches);
  std::vector<int> restored(graph.values().size(), -1);  // by value: the norm that made it
  std::vector<bool> is_fetched(graph.values().size());
  for (const Value& fetch : fetches) is_fetched[fetch.id] = true;
  int count = 0;
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    const std::optional<CompressibleNorm> found = norms.match(i);
    if (!found) continue;
    ++count;
    Node &norm = nodes[i], &gradient = nodes[found->gradient];
    const int codes =
        graph
            .new_result({.name = norm.name + "/codes",
                         .spec = TensorSpec{DType::kU8, graph.value(norm.inputs[0]).spec.shape}})
            .id;
    std::get<BatchNormApply>(norm.op).compresses = true;
    norm.outputs.push_back(codes);
    std::get<BatchNormGrad>(gradient.op).compressed = true;
    gradient.inputs[1] = codes;
    const auto result = static_cast<size_t>(norm.outputs[0]);
    if (norm.inputs.size() == 5 && !is_fetched[result]) restored[result] = i;
  }
  if (count == 0) return 0;

  std::vector<int> replacement(restored.size(), -1);  // by value
  std::vector<Node> result;
  for (Node& node : nodes) {
    const bool is_backward = is_of_backward_pass(graph, node);
    for (int& input : node.inputs) {
      const auto value = static_cast<size_t>(input);
      if (!is_backward || value >= restored.size() || restored[value] < 0) continue;
      if (replacement[value] < 0) {
        const Node& norm = nodes[restored[value]];
        ValueInfo info = graph.value(input);
        info.name += "/restored";
        info.backward = true;
        replacement[value] = graph.new_result(std::move(info)).id;
        const auto& apply = std::get<BatchNormApply>(norm.op);
        Node restore{BatchNormApply{.epsilon = apply.epsilon, .relu = apply.relu, .compressed = true},
                     norm.name + "/restore",
                     norm.inputs,
                     {replacement[value]},
                     node.device};
        restore.inputs[0] = norm.outputs[1];
        result.push_back(std::move(restore));
      }
      input = replacement[value];
    }
    result.push_back(node);
  }
  graph.replace_nodes(std::move(result));
  mark_branches(graph);
  add_restorers(graph, fetches);
  return count;
}

}  // namespace headroom
