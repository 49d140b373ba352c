#include "runtime/graph/fuse.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/graph/fuse_rules.h"
#include "runtime/graph/graph_view.h"

namespace headroom {
namespace {

// Replaces scale, broadcast_to and reshape of a fill by a fill.
void fold_constants(Graph& graph) {
  std::vector<std::optional<float>> constants(
      graph.values().size());  // constant that fills a value, by value
  Rewrite rewrite(graph);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const auto input = [&] { return constants[static_cast<size_t>(node.inputs[0])]; };
    const std::optional<float> constant =
        std::visit(Overloaded{
                       [](const Fill& fill) { return std::optional(fill.value); },
                       [&](const Scale& scale) {
                         return input() ? std::optional(scale.factor * *input()) : std::nullopt;
                       },
                       [&](const BroadcastTo&) { return input(); },
                       [&](const Reshape&) { return input(); },
                       [&](const CopyToDevice&) { return input(); },
                       [](const auto&) { return std::optional<float>(); },
                   },
                   node.op);
    if (!constant) continue;
    constants[static_cast<size_t>(node.outputs[0])] = constant;
    const Shape& shape = graph.value(node.outputs[0]).spec.shape;
    rewrite.put(static_cast<int>(i), Node{Fill{*constant, shape}, node.name, {}, node.outputs});
  }
  rewrite.apply(graph);
}

// Updates all moving averages of a momentum in one node, which is one launch.
void join_moving_averages(Graph& graph) {
  struct Joined {
    std::vector<int> nodes, operands;
  };
  std::map<std::pair<std::string, float>, Joined> all;  // by device and momentum
  std::vector<bool> is_changed(graph.values().size());
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const auto* update = std::get_if<MovingAverageUpdate>(&node.op);
    if (!update) continue;
    Joined& joined = all[{node.device, update->momentum}];
    for (size_t at = 0; at < node.inputs.size(); at += 2) {
      const auto average = static_cast<size_t>(node.inputs[at]);
      if (is_changed[average]) return;  // one update needs what another has made
      is_changed[average] = true;
    }
    joined.nodes.push_back(static_cast<int>(i));
    joined.operands.insert(joined.operands.end(), node.inputs.begin(), node.inputs.end());
  }
  Rewrite rewrite(graph);
  for (auto& [key, joined] : all) {
    if (joined.nodes.size() < 2) continue;
    for (const int node : joined.nodes) rewrite.drop(node);
    const int last = joined.nodes.back();
    rewrite.put(last,
                Node{MovingAverageUpdate{key.second}, graph.node(last).name, std::move(joined.operands), {}});
  }
  rewrite.apply(graph);
}

// A transposition that moves only axes of extent 1 is a reshape, which copies nothing.
class IdleTransposes : private GraphView {
 public:
  using GraphView::GraphView;

  std::optional<int> match(int node) const {
    const auto* moved = op<Transpose>(node);
    return moved && keeps_order(shape(input(node, 0)), moved->axes) ? std::optional(node) : std::nullopt;
  }

  void rewrite(int node, Rewrite& nodes) const {
    const Node& moved = graph().node(node);
    nodes.put(node, Node{Reshape{shape(output(node))}, moved.name, moved.inputs, moved.outputs});
  }
};

}  // namespace

int fuse(Graph& graph, std::span<const Value> keep, Precision precision) {
  fold_constants(graph);
  rewrite_matches(IdleTransposes(graph, keep), graph);
  const auto has_kernel = [&](const OpTraits& op) { return op.takes_half || precision == Precision::kF32; };
  int whole = 0;
  if (has_kernel(ClassifierHead::kTraits)) whole += fuse_classifier_heads(graph, keep);
  if (has_kernel(ConvBlock::kTraits)) whole += fuse_conv_blocks(graph, keep);
  join_moving_averages(graph);
  fuse_residual_gradients(graph, keep);
  whole += fuse_conv_biases(graph, keep) + fuse_batch_norms(graph, keep);
  // Tensor cores truncate f32 operands to 10 bits, which biases products over many pixels, so that they no
  // longer cancel with the terms subtracted from them. 16 bits are multiplied as they are.
  if (precision != Precision::kF32) fuse_conv_norm_gradients(graph, keep);
  whole += fuse_dense_layers(graph, keep);
  fuse_expressions(graph, keep);
  return whole;
}

}  // namespace headroom
