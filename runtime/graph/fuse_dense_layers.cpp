#include <algorithm>
#include <optional>

#include "runtime/graph/fuse_rules.h"
#include "runtime/graph/graph_view.h"

namespace headroom {
namespace {

// Node ids; -1 for absent ones.
struct Layer {
  int product, bias, reshape = -1, sum = -1, relu = -1;
  int bias_value = -1, residual = -1;  // values
  int last() const { return std::max({bias, sum, relu}); }
};

// The gradients of a layer's weights and of its bias.
struct DenseGradient {
  int product, sum;
};

class DenseLayers : private GraphView {
 public:
  using GraphView::GraphView;

  // Does not add a residual if that would use a sum that is `taken`.
  std::optional<Layer> match_layer(int product, const std::vector<bool>& taken) const {
    const auto* matmul = op<MatMul>(product);
    if (!matmul || matmul->transpose_a || shape(input(product, 1)).rank() != 2) return {};
    if (shape(input(product, 0)).rank() < 2 || shape(input(product, 0)).last() == 0) return {};
    Layer layer{product, only_reader(output(product))};
    layer.bias_value = bias_of(layer.bias, output(product));
    if (layer.bias_value < 0) layer.bias = -1;
    int before = output(layer.bias >= 0 ? layer.bias : product);
    // The residual may have other axes before the last one.
    const int reshape = only_reader(before);
    const bool keeps_rows = op<Reshape>(reshape) && shape(output(reshape)).rank() >= 2 &&
                            shape(output(reshape)).last() == shape(before).last();
    if (keeps_rows) before = output(reshape);
    const int sum = only_reader(before);
    if (adds_residual(sum, before) && !taken[static_cast<size_t>(sum)]) {
      layer.sum = sum;
      if (keeps_rows) layer.reshape = reshape;
      layer.residual = input(sum, input(sum, 0) == before ? 1 : 0);
    }
    if (layer.bias < 0 && layer.sum < 0) return {};
    const int next = only_reader(output(layer.last()));
    if (const auto* unary = op<Unary>(next); unary && unary->kind == UnaryKind::kRelu) layer.relu = next;
    if (!on_one_device({layer.product, layer.bias, layer.reshape, layer.sum, layer.relu})) return {};
    return changes_operand(product, product, layer.last()) ? std::nullopt : std::optional(layer);
  }

  std::optional<DenseGradient> match_gradient(int product) const {
    const auto* matmul = op<MatMul>(product);
    if (!matmul || *matmul != MatMul{true, false} || !multiplies_matrices(product)) return {};
    const int dy = input(product, 1);
    const auto found = std::find_if(readers(dy).begin(), readers(dy).end(), [&](int reader) {
      const auto* sum = op<Reduce>(reader);
      return sum && *sum == Reduce{ReduceKind::kSum, {0}, false};
    });
    if (found == readers(dy).end()) return {};
    const DenseGradient gradient{product, *found};
    if (!on_one_device({product, *found})) return {};
    // Both are computed at the first of them: by then the layer's input must exist.
    const int first = std::min(product, gradient.sum), last = std::max(product, gradient.sum);
    if (maker(input(product, 0)) > first) return {};
    return changes_operand(product, first, last) ? std::nullopt : std::optional(gradient);
  }

  void rewrite(const Layer& layer, Rewrite& nodes) const {
    for (int node : {layer.product, layer.bias, layer.reshape, layer.sum, layer.relu}) nodes.drop(node);
    Node dense{Dense{layer.relu >= 0, op<MatMul>(layer.product)->transpose_b},
               graph().node(layer.product).name,
               {input(layer.product, 0), input(layer.product, 1)},
               {output(layer.last())}};
    if (layer.bias_value >= 0) dense.inputs.push_back(layer.bias_value);
    if (layer.residual >= 0) dense.inputs.push_back(layer.residual);
    nodes.put(layer.last(), std::move(dense));
  }

  void rewrite(const DenseGradient& gradient, Rewrite& nodes) const {
    nodes.drop(gradient.product);
    nodes.drop(gradient.sum);
    nodes.put(std::min(gradient.product, gradient.sum),
              Node{DenseFilterGrad{},
                   graph().node(gradient.product).name,
                   graph().node(gradient.product).inputs,
                   {output(gradient.product), output(gradient.sum)}});
  }

 private:
  // Returns the vector that a node adds along the last axis of `value`, on either side; -1 if it does
  // something else.
  int bias_of(int node, int value) const {
    const auto* binary = op<Binary>(node);
    if (!binary || binary->kind != BinaryKind::kAdd) return -1;
    const int other = input(node, 0) == value ? input(node, 1) : input(node, 0);
    const bool is_vector = shape(other) == Shape{shape(value).last()} && shape(output(node)) == shape(value);
    return other != value && is_vector ? other : -1;
  }
  // Returns true if the node adds `value` and another tensor of its shape.
  bool adds_residual(int node, int value) const {
    const auto* binary = op<Binary>(node);
    return binary && binary->kind == BinaryKind::kAdd && input(node, 0) != input(node, 1) &&
           shape(input(node, 0)) == shape(value) && shape(input(node, 1)) == shape(value);
  }
  bool multiplies_matrices(int product) const {
    const Shape &a = shape(input(product, 0)), &b = shape(input(product, 1));
    const bool sums = op<MatMul>(product)->transpose_a ? a.rank() == 2 && a[1] > 0 : a.last() > 0;
    return a.rank() == 2 && b.rank() == 2 && sums;
  }
  // Returns true if a node in [first, last] changes an operand of the product.
  bool changes_operand(int product, int first, int last) const {
    return changes(first, last, {input(product, 0), input(product, 1)});
  }
};

}  // namespace

int fuse_dense_layers(Graph& graph, std::span<const Value> keep) {
  const DenseLayers layers(graph, keep);
  Rewrite nodes(graph);
  int count = 0;
  std::vector<bool> summed(graph.nodes().size()), taken(graph.nodes().size());
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    if (const std::optional<Layer> layer = layers.match_layer(i, taken)) {
      if (layer->sum >= 0) taken[static_cast<size_t>(layer->sum)] = true;
      layers.rewrite(*layer, nodes);
      ++count;
    }
    const std::optional<DenseGradient> gradient = layers.match_gradient(i);
    // Two products can share a gradient, its sum belongs to one of them.
    if (!gradient || summed[static_cast<size_t>(gradient->sum)]) continue;
    summed[static_cast<size_t>(gradient->sum)] = true;
    layers.rewrite(*gradient, nodes);
  }
  nodes.apply(graph);
  return count;
}

}  // namespace headroom
