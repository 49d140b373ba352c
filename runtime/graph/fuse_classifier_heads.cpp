#include <algorithm>
#include <optional>

#include "runtime/graph/fuse_rules.h"
#include "runtime/graph/graph_view.h"

namespace headroom {
namespace {

// x w + b without transposes: node ids.
struct LogitsLayer {
  int product, bias;
};

struct Head {
  LogitsLayer first, second;
  int relu, loss, dloss_fill;  // dloss_fill: the node that makes dloss when it has to move up, else -1
  int loss_grad, hidden_grad, relu_grad, x_grad;
};

class ClassifierHeads : private GraphView {
 public:
  using GraphView::GraphView;

  std::optional<Head> match(int loss_grad) const {
    if (!op<CrossEntropyGrad>(loss_grad) || op<CrossEntropyGrad>(loss_grad)->classes != 0) return {};
    Head head{};
    head.loss_grad = loss_grad;
    const int logits = input(loss_grad, 0);
    const std::optional<LogitsLayer> second = dense_of(logits);
    if (!second) return {};
    head.second = *second;
    const int hidden = input(second->product, 0);
    head.relu = maker(hidden);
    const auto* relu = op<Unary>(head.relu);
    if (!relu || relu->kind != UnaryKind::kRelu || only_reader(input(head.relu, 0)) != head.relu) return {};
    const std::optional<LogitsLayer> first = dense_of(input(head.relu, 0));
    if (!first) return {};
    head.first = *first;

    head.loss = find(logits, [&](int reader) {
      return op<CrossEntropy>(reader) && input(reader, 1) == input(loss_grad, 1);
    });
    head.hidden_grad = product_with_transposed(output(loss_grad), input(second->product, 1));
    if (head.loss < 0 || head.hidden_grad < 0) return {};
    head.relu_grad = only_reader(output(head.hidden_grad));
    const auto* relu_grad = op<UnaryGrad>(head.relu_grad);
    if (!relu_grad || relu_grad->kind != UnaryKind::kRelu || input(head.relu_grad, 1) != hidden ||
        input(head.relu_grad, 0) == hidden) {
      return {};
    }
    head.x_grad = product_with_transposed(output(head.relu_grad), input(first->product, 1));
    if (head.x_grad < 0) return {};

    // The whole head runs where the logits are made: by then its other operands must be known, and the
    // weights must not change before the last reader that is removed.
    const int place = second->bias, dloss = input(loss_grad, 2);
    const int dloss_maker = maker(dloss);
    head.dloss_fill = op<Fill>(dloss_maker) && dloss_maker > place ? dloss_maker : -1;
    if (maker(input(loss_grad, 1)) > place || (dloss_maker > place && head.dloss_fill < 0)) return {};
    const auto reads_before = [&](int reader) { return reader < place && reader != second->product; };
    if (std::any_of(readers(hidden).begin(), readers(hidden).end(), reads_before)) return {};
    if (!on_one_device({first->product, first->bias, head.relu, second->product, second->bias, head.loss,
                        loss_grad, head.dloss_fill, head.hidden_grad, head.relu_grad, head.x_grad})) {
      return {};
    }
    const int last = std::max({loss_grad, head.loss, head.x_grad, head.relu_grad});
    return changes_weights(head, last) ? std::nullopt : std::optional(head);
  }

  void rewrite(const Head& head, Rewrite& nodes) const {
    const auto& [first, second, relu, loss, dloss_fill, loss_grad, hidden_grad, relu_grad, x_grad] = head;
    for (int node : {first.product, first.bias, relu, second.product, loss, loss_grad, hidden_grad, relu_grad,
                     x_grad, dloss_fill}) {
      nodes.drop(node);
    }
    if (dloss_fill >= 0) nodes.put(first.product, graph().node(dloss_fill));
    nodes.put(second.bias, Node{ClassifierHead{},
                                graph().node(first.product).name,
                                {input(first.product, 0), input(first.product, 1), input(first.bias, 1),
                                 input(second.product, 1), input(second.bias, 1), input(loss_grad, 1),
                                 input(loss_grad, 2)},
                                {output(relu), output(second.bias), output(loss), output(loss_grad),
                                 output(relu_grad), output(x_grad)}});
  }

 private:
  // The layer that makes `value`, if no other node reads the product.
  std::optional<LogitsLayer> dense_of(int value) const {
    const int bias = maker(value);
    if (!op<Binary>(bias)) return {};
    const int product = maker(input(bias, 0));
    const auto* matmul = op<MatMul>(product);
    if (!matmul || *matmul != MatMul{} || !adds_bias(bias, output(product))) return {};
    if (shape(output(product)).rank() != 2 || only_reader(output(product)) != bias) return {};
    if (shape(input(product, 0)).rank() != 2 || shape(input(product, 1)).rank() != 2) return {};
    return LogitsLayer{product, bias};
  }
  // Returns the reader that makes value weights^T; -1 if there is none.
  int product_with_transposed(int value, int weights) const {
    return find(value, [&](int reader) {
      const auto* matmul = op<MatMul>(reader);
      return matmul && *matmul == MatMul{false, true} && input(reader, 0) == value &&
             input(reader, 1) == weights;
    });
  }
  template <typename F>
  int find(int value, F is_wanted) const {
    const auto found = std::find_if(readers(value).begin(), readers(value).end(), is_wanted);
    return found == readers(value).end() ? -1 : *found;
  }
  bool changes_weights(const Head& head, int last) const {
    const auto &first = head.first, &second = head.second;
    return changes(
        first.product, last,
        {input(first.product, 1), input(first.bias, 1), input(second.product, 1), input(second.bias, 1)});
  }
};

}  // namespace

int fuse_classifier_heads(Graph& graph, std::span<const Value> keep) {
  return rewrite_matches(ClassifierHeads(graph, keep), graph);
}

}  // namespace headroom
