#include "runtime/fuse.h"

#include <algorithm>
#include <optional>

namespace headroom {
namespace {

// Node ids of one chain; -1 where a part is absent.
struct Chain {
  int conv, bias, relu, pool = -1;
  // its gradient
  int pool_grad = -1, relu_grad = -1, input_grad = -1, filter_grad = -1, bias_grad = -1;
};

class Fuser {
 public:
  Fuser(Graph& graph, std::span<const Value> keep)
      : graph_(graph), readers_(graph.values().size()), kept_(readers_.size()) {
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      for (int input : graph.nodes()[i].inputs)
        readers_[static_cast<size_t>(input)].push_back(static_cast<int>(i));
    }
    for (const Value& value : keep) kept_[static_cast<size_t>(value.id)] = true;
  }

  int run() {
    std::vector<std::optional<Node>> nodes;
    for (const Node& node : graph_.nodes()) nodes.emplace_back(node);
    int blocks = 0;
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const std::optional<Chain> chain = match(static_cast<int>(i));
      if (!chain) continue;
      rewrite(*chain, nodes);
      ++blocks;
    }
    std::vector<Node> rest;
    for (auto& node : nodes) {
      if (node) rest.push_back(std::move(*node));
    }
    graph_.replace_nodes(std::move(rest));
    return blocks;
  }

 private:
  template <typename T>
  const T* op(int node) const {
    return std::get_if<T>(&graph_.node(node).op);
  }
  const std::vector<int>& readers(int value) const { return readers_[static_cast<size_t>(value)]; }
  bool kept(int value) const { return kept_[static_cast<size_t>(value)]; }
  int output(int node, size_t i = 0) const { return graph_.node(node).outputs[i]; }
  int input(int node, size_t i) const { return graph_.node(node).inputs[i]; }

  // The only reader of a value that nobody fetches; -1 otherwise.
  int only_reader(int value) const {
    return !kept(value) && readers(value).size() == 1 ? readers(value)[0] : -1;
  }

  std::optional<Chain> match(int conv) const {
    if (!op<Conv2d>(conv)) return {};
    Chain chain{conv, -1, -1};
    chain.bias = only_reader(output(conv));
    if (chain.bias < 0 || !is_bias(chain.bias, output(conv))) return {};
    chain.relu = only_reader(output(chain.bias));
    if (chain.relu < 0 || !op<Unary>(chain.relu) || op<Unary>(chain.relu)->kind != UnaryKind::kRelu)
      return {};

    const int y = output(chain.relu);
    std::vector<int> others = readers(y);
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
      return plain ? std::optional(chain) : std::nullopt;
    }
    return match_gradient(chain) ? std::optional(chain) : std::nullopt;
  }

  bool is_bias(int node, int conv_output) const {
    const auto* add = op<Binary>(node);
    if (!add || add->kind != BinaryKind::kAdd || input(node, 0) != conv_output) return false;
    return graph_.value(input(node, 1)).spec.shape == Shape{graph_.value(conv_output).spec.shape.last()};
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

  void rewrite(const Chain& chain, std::vector<std::optional<Node>>& nodes) const {
    ConvBlock block{*op<Conv2d>(chain.conv), std::nullopt};
    if (chain.pool >= 0) block.pool = op<MaxPool>(chain.pool)->pool;
    const int x = input(chain.conv, 0), filter = input(chain.conv, 1), bias = input(chain.bias, 1);
    const int last = chain.pool >= 0 ? chain.pool : chain.relu;
    const auto drop = [&](int node) {
      if (node >= 0) nodes[static_cast<size_t>(node)].reset();
    };
    const std::string name = graph_.node(chain.conv).name;
    for (int node : {chain.conv, chain.bias, chain.relu, chain.pool, chain.pool_grad, chain.relu_grad})
      drop(node);
    nodes[static_cast<size_t>(last)] = Node{block, name, {x, filter, bias}, graph_.node(last).outputs};
    if (chain.relu_grad < 0) return;

    const int dy = input(chain.pool_grad >= 0 ? chain.pool_grad : chain.relu_grad, 0);
    const int route = chain.pool >= 0 ? output(chain.pool, 1) : output(chain.relu);
    const int first = std::min(chain.filter_grad, chain.bias_grad);
    const Shape filter_shape = graph_.value(filter).spec.shape;
    drop(chain.filter_grad);
    drop(chain.bias_grad);
    nodes[static_cast<size_t>(first)] = Node{ConvBlockFilterGrad{block, filter_shape},
                                             graph_.node(chain.filter_grad).name,
                                             {x, dy, route},
                                             {output(chain.filter_grad), output(chain.bias_grad)}};
    if (chain.input_grad < 0) return;
    nodes[static_cast<size_t>(chain.input_grad)] = Node{ConvBlockInputGrad{block, graph_.value(x).spec.shape},
                                                        graph_.node(chain.input_grad).name,
                                                        {dy, route, filter},
                                                        {output(chain.input_grad)}};
  }

  Graph& graph_;
  std::vector<std::vector<int>> readers_;  // by value
  std::vector<bool> kept_;                 // by value
};

}  // namespace

int fuse(Graph& graph, std::span<const Value> keep) {
  return Fuser(graph, keep).run();
}

}  // namespace headroom
