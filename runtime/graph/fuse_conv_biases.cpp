#include <optional>

#include "runtime/graph/fuse_rules.h"
#include "runtime/graph/graph_view.h"

namespace headroom {
namespace {

// Node ids and values of one chain: relu(conv [+ residual]); -1 for an absent part.
struct BiasChain {
  int conv, add = -1, relu = -1;
  int residual = -1;  // a value
  int last() const { return relu >= 0 ? relu : add; }
};

// The chain becomes one node in the place of its last.
class BiasChains : private GraphView {
 public:
  using GraphView::GraphView;

  std::optional<BiasChain> match(int conv) const {
    const auto* op_of_conv = op<ConvBias>(conv);
    if (!op_of_conv || op_of_conv->relu || graph().node(conv).inputs.size() > 3) return {};
    BiasChain chain{conv};
    int next = only_reader(output(conv));
    if (const auto* sum = op<Binary>(next); sum && sum->kind == BinaryKind::kAdd) {
      const int a = input(next, 0), b = input(next, 1), other = a == output(conv) ? b : a;
      // The later one of two added convolutions uses the other as its residual.
      if (a != b && shape(other) == shape(output(conv)) && maker(other) < conv) {
        chain.add = next;
        chain.residual = other;
        next = only_reader(output(next));
      }
    }
    const auto* unary = op<Unary>(next);
    if (unary && unary->kind == UnaryKind::kRelu) chain.relu = next;
    if (chain.last() < 0 || !on_one_device({chain.conv, chain.add, chain.relu})) return {};
    const Node& node = graph().node(conv);
    const bool is_overwritten = changes(conv, chain.last(), {node.inputs[0], node.inputs[1], node.inputs[2]});
    return is_overwritten ? std::nullopt : std::optional(chain);
  }

  void rewrite(const BiasChain& chain, Rewrite& nodes) const {
    const Node& conv = graph().node(chain.conv);
    Node fused{ConvBias{op<ConvBias>(chain.conv)->conv, chain.relu >= 0},
               conv.name,
               conv.inputs,
               {output(chain.last())}};
    if (chain.residual >= 0) fused.inputs.push_back(chain.residual);
    for (int node : {chain.conv, chain.add, chain.relu}) nodes.drop(node);
    nodes.put(chain.last(), std::move(fused));
  }
};

}  // namespace

int fuse_conv_biases(Graph& graph, std::span<const Value> keep) {
  return rewrite_matches(BiasChains(graph, keep), graph);
}

}  // namespace headroom
