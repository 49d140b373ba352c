#include <algorithm>
#include <optional>

#include "runtime/graph/fuse_rules.h"
#include "runtime/graph/graph_view.h"

namespace headroom {
namespace {

// Node ids of one chain; -1 for an absent part.
struct Chain {
  int conv, bias, relu, pool = -1;
  // its gradient
  int pool_grad = -1, relu_grad = -1, input_grad = -1, filter_grad = -1, bias_grad = -1;
};

class ConvBlocks : private GraphView {
 public:
  using GraphView::GraphView;

  std::optional<Chain> match(int conv) const {
    if (!op<Conv2d>(conv) || op<Conv2d>(conv)->filter_by_result) return {};
    Chain chain{conv, -1, -1};
    chain.bias = only_reader(output(conv));
    if (chain.bias < 0 || !adds_bias(chain.bias, output(conv))) return {};
    chain.relu = only_reader(output(chain.bias));
    if (chain.relu < 0 || !op<Unary>(chain.relu) || op<Unary>(chain.relu)->kind != UnaryKind::kRelu)
      return {};

    const int y = output(chain.relu);
    const std::span<const int> of_y = readers(y);
    std::vector<int> others(of_y.begin(), of_y.end());
    std::erase_if(others, [&](int reader) {
      const auto* grad = op<UnaryGrad>(reader);
      const bool own =
          grad && grad->kind == UnaryKind::kRelu && input(reader, 1) == y && input(reader, 0) != y;
      if (own && chain.relu_grad < 0) chain.relu_grad = reader;
      return own && chain.relu_grad == reader;
    });
    if (!kept(y) && others.size() == 1 && op<MaxPool>(others[0])) chain.pool = others[0];
    if (chain.relu_grad < 0) {
      // Inference: a pool's index must have no reader either.
      const bool plain =
          chain.pool < 0 || (readers(output(chain.pool, 1)).empty() && !kept(output(chain.pool, 1)));
      return plain && on_one_device(chain) ? std::optional(chain) : std::nullopt;
    }
    return match_gradient(chain) && on_one_device(chain) ? std::optional(chain) : std::nullopt;
  }

  bool on_one_device(const Chain& c) const {
    return GraphView::on_one_device(
        {c.conv, c.bias, c.relu, c.pool, c.pool_grad, c.relu_grad, c.input_grad, c.filter_grad, c.bias_grad});
  }

  bool match_gradient(Chain& chain) const {
    if (chain.pool >= 0) {
      chain.pool_grad = only_reader(output(chain.pool, 1));
      if (chain.pool_grad < 0 || !op<MaxPoolGrad>(chain.pool_grad)) return false;
      const int dx = output(chain.pool_grad);
      if (only_reader(dx) != chain.relu_grad || input(chain.relu_grad, 0) != dx) return false;
    }
    const int g = output(chain.relu_grad);
    if (kept(g)) return false;
    for (int reader : readers(g)) {
      int* part = nullptr;
      if (op<Conv2dInputGrad>(reader) && input(reader, 1) == input(chain.conv, 1)) part = &chain.input_grad;
      if (op<Conv2dFilterGrad>(reader) && input(reader, 0) == input(chain.conv, 0)) part = &chain.filter_grad;
      const auto* sum = op<Reduce>(reader);
      if (sum && sum->kind == ReduceKind::kSum && sum->axes == std::vector<int>{0, 1, 2} && !sum->keep_axes) {
        part = &chain.bias_grad;
      }
      if (!part || *part >= 0) return false;
      *part = reader;
    }
    return chain.filter_grad >= 0 && chain.bias_grad >= 0;
  }

  void rewrite(const Chain& chain, Rewrite& nodes) const {
    ConvBlock block{*op<Conv2d>(chain.conv), std::nullopt};
    if (chain.pool >= 0) block.pool = op<MaxPool>(chain.pool)->pool;
    const int x = input(chain.conv, 0), filter = input(chain.conv, 1), bias = input(chain.bias, 1);
    const int last = chain.pool >= 0 ? chain.pool : chain.relu;
    const std::string name = graph().node(chain.conv).name;
    for (int node : {chain.conv, chain.bias, chain.relu, chain.pool, chain.pool_grad, chain.relu_grad})
      nodes.drop(node);
    nodes.put(last, Node{block, name, {x, filter, bias}, graph().node(last).outputs});
    if (chain.relu_grad < 0) return;

    const int dy = input(chain.pool_grad >= 0 ? chain.pool_grad : chain.relu_grad, 0);
    const int route = chain.pool >= 0 ? output(chain.pool, 1) : output(chain.relu);
    const int first = std::min(chain.filter_grad, chain.bias_grad);
    const Shape filter_shape = shape(filter);
    nodes.drop(chain.filter_grad);
    nodes.drop(chain.bias_grad);
    nodes.put(first, Node{ConvBlockFilterGrad{block, filter_shape},
                          graph().node(chain.filter_grad).name,
                          {x, dy, route},
                          {output(chain.filter_grad), output(chain.bias_grad)}});
    if (chain.input_grad < 0) return;
    nodes.put(chain.input_grad, Node{ConvBlockInputGrad{block, shape(x)},
                                     graph().node(chain.input_grad).name,
                                     {dy, route, filter},
                                     {output(chain.input_grad)}});
  }
};

}  // namespace

int fuse_conv_blocks(Graph& graph, std::span<const Value> keep) {
  return rewrite_matches(ConvBlocks(graph, keep), graph);
}

}  // namespace headroom
