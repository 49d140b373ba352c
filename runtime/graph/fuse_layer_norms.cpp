#include <optional>

#include "runtime/graph/fuse_rules.h"
#include "runtime/graph/graph_view.h"

namespace headroom {
namespace {

// Node ids, and a value: the gradient that comes past the norm.
struct ResidualGradient {
  int norm_grad, sum;
  int past;
};

// Of y = x + f(norm(x)), the gradient of x is that of y and that of the norm.
class ResidualGradients : private GraphView {
 public:
  using GraphView::GraphView;

  std::optional<ResidualGradient> match(int norm_grad) const {
    if (!op<LayerNormGrad>(norm_grad) || graph().node(norm_grad).inputs.size() != 5) return {};
    const int dx = output(norm_grad), sum = only_reader(dx);
    const auto* binary = op<Binary>(sum);
    if (!binary || binary->kind != BinaryKind::kAdd) return {};
    const int past = input(sum, input(sum, 0) == dx ? 1 : 0);
    if (past == dx || shape(past) != shape(dx) || maker(past) > norm_grad) return {};
    if (changes(norm_grad, sum, {past}) || !on_one_device({norm_grad, sum})) return {};
    return ResidualGradient{norm_grad, sum, past};
  }

  void rewrite(const ResidualGradient& gradient, Rewrite& nodes) const {
    Node fused = graph().node(gradient.norm_grad);
    fused.inputs.push_back(gradient.past);
    fused.outputs[0] = output(gradient.sum);
    nodes.drop(gradient.sum);
    nodes.put(gradient.norm_grad, std::move(fused));
  }
};

}  // namespace

void fuse_layer_norms(Graph& graph, std::span<const Value> keep) {
  rewrite_matches(ResidualGradients(graph, keep), graph);
}

}  // namespace headroom
