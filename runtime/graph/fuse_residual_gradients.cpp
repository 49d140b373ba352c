#include <optional>

#include "runtime/graph/fuse_rules.h"
#include "runtime/graph/graph_view.h"

namespace headroom {
namespace {

// Node ids, and a value: the gradient that comes past f.
struct ResidualGradient {
  int f_grad, sum;
  int past;
};

// If x and f(x) are both read, as in x + g(norm(x)) or in a U-Net that keeps what it pools, the gradient of x
// is the sum of the gradient that bypasses f and the gradient of f.
class ResidualGradients : private GraphView {
 public:
  using GraphView::GraphView;

  std::optional<ResidualGradient> match(int f_grad) const {
    if (!may_add(f_grad)) return {};
    const int dx = output(f_grad), sum = only_reader(dx);
    const auto* binary = op<Binary>(sum);
    if (!binary || binary->kind != BinaryKind::kAdd) return {};
    const int past = input(sum, input(sum, 0) == dx ? 1 : 0);
    if (past == dx || shape(past) != shape(dx) || maker(past) > f_grad) return {};
    if (changes(f_grad, sum, {past}) || !on_one_device({f_grad, sum})) return {};
    return ResidualGradient{f_grad, sum, past};
  }

  void rewrite(const ResidualGradient& gradient, Rewrite& nodes) const {
    Node fused = graph().node(gradient.f_grad);
    fused.inputs.push_back(gradient.past);
    fused.outputs[0] = output(gradient.sum);
    nodes.drop(gradient.sum);
    nodes.put(gradient.f_grad, std::move(fused));
  }

 private:
  // Returns true if the gradient adds nothing yet.
  bool may_add(int node) const {
    const size_t operands = op<LayerNormGrad>(node) ? 5 : op<MaxPoolGrad>(node) ? 2 : 0;
    return operands > 0 && graph().node(node).inputs.size() == operands;
  }
};

}  // namespace

void fuse_residual_gradients(Graph& graph, std::span<const Value> keep) {
  rewrite_matches(ResidualGradients(graph, keep), graph);
}

}  // namespace headroom
