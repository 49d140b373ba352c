#include <algorithm>
#include <optional>

#include "runtime/graph/fuse_rules.h"
#include "runtime/graph/graph_view.h"

namespace headroom {
namespace {

// Node ids: the gradient of a norm, and its only readers, the two gradients of the convolution before it.
struct ConvNormGradients {
  int norm_grad, input_grad, filter_grad, conv;
  int first() const { return std::min(input_grad, filter_grad); }
};

class ConvNorms : private GraphView {
 public:
  // `residual`: norms with relu and a residual, or norms without either.
  ConvNorms(const Graph& graph, std::span<const Value> keep, bool residual)
      : GraphView(graph, keep), residual_(residual) {}

  std::optional<ConvNormGradients> match(int norm_grad) const {
    const auto* gradient = op<BatchNormGrad>(norm_grad);
    if (!gradient || gradient->residual != residual_ || gradient->relu != residual_) return {};
    // The sum of the incoming gradient must exist already.
    if (!residual_ && !arrives_summed(norm_grad)) return {};
    const int conv = maker(input(norm_grad, 1));
    if (!pays(conv)) return {};
    const int statistics = maker(input(norm_grad, 4));  // statistics of the convolution's result in this step
    if (!op<BatchNormStatistics>(statistics) || input(statistics, 0) != input(norm_grad, 1)) return {};
    ConvNormGradients found{norm_grad, -1, -1, conv};
    const int dz = output(norm_grad);
    for (const int reader : readers(dz)) {
      if (op<Conv2dInputGrad>(reader) && input(reader, 0) == dz && input(reader, 1) == input(conv, 1)) {
        found.input_grad = reader;
      } else if (op<Conv2dFilterGrad>(reader) && input(reader, 0) == input(conv, 0) &&
                 input(reader, 1) == dz) {
        found.filter_grad = reader;
      } else {
        return {};
      }
    }
    if (found.input_grad < 0 || found.filter_grad < 0 || kept(dz) || readers(dz).size() != 2) return {};
    // Gamma's gradient comes with the filter's now.
    const auto is_early = [&](int reader) { return reader < found.first(); };
    const std::span<const int> of_gamma = readers(output(norm_grad, 1));
    if (std::ranges::any_of(of_gamma, is_early)) return {};
    const bool is_changed = changes(conv, std::max(found.input_grad, found.filter_grad),
                                    {input(conv, 0), input(conv, 1), input(norm_grad, 2)});
    if (is_changed || !on_one_device({conv, norm_grad, found.input_grad, found.filter_grad})) return {};
    return found;
  }

  void rewrite(const ConvNormGradients& found, Rewrite& nodes) const {
    const Node& norm_grad = graph().node(found.norm_grad);
    const int g = residual_ ? output(found.norm_grad, 3) : input(found.norm_grad, 0);
    const int sums = residual_ ? output(found.norm_grad, 2) : output(maker(g), 1);
    Node both{
        ConvNormGrad{op<BatchNormGrad>(found.norm_grad)->epsilon, op<Conv2d>(found.conv)->filter_by_result},
        graph().node(found.filter_grad).name,
        {g, sums, input(found.conv, 0), input(found.conv, 1), norm_grad.inputs[2], norm_grad.inputs[4]},
        {output(found.input_grad), output(found.filter_grad), norm_grad.outputs[1]}};
    nodes.drop(found.input_grad);
    nodes.drop(found.filter_grad);
    nodes.put(found.first(), std::move(both));
    if (!residual_) {
      // The gradient of beta is the existing sum: the same bytes.
      nodes.put(found.norm_grad, Node{Reshape{shape(sums)}, norm_grad.name, {sums}, {norm_grad.outputs[2]}});
      return;
    }
    Node branches{BranchGrad{}, norm_grad.name, {norm_grad.inputs[0], norm_grad.inputs[5]}, {g, sums}};
    if (norm_grad.inputs.size() > 6) branches.inputs.push_back(norm_grad.inputs[6]);
    nodes.put(found.norm_grad, std::move(branches));
  }

 private:
  bool arrives_summed(int norm_grad) const {
    const int g = input(norm_grad, 0), branches = maker(g);
    return op<BranchGrad>(branches) && output(branches) == g;
  }

  // Counted in tensors of C channels, made from K, the gradients of norm and convolution read and write 10.5
  // separately and 7.75 as one node if C = 4 K, 11 and 9.5 if C = 2 K. The matrices of channels, K (K + C)
  // numbers, must be small compared to the tensors, for any batch.
  bool pays(int conv) const {
    constexpr int64_t kWider = 2, kMaxChannels = 256;
    const auto* conv2d = op<Conv2d>(conv);
    if (!conv2d || conv2d->groups != 1 || conv2d->stride != Pair{1, 1} || conv2d->padding != Pair{0, 0})
      return false;
    const Shape filter = conv_filter_shape(*conv2d, shape(input(conv, 1)));
    return filter[0] == 1 && filter[1] == 1 && filter[2] <= kMaxChannels && filter[3] >= kWider * filter[2];
  }

  const bool residual_;
};

}  // namespace

void fuse_conv_norm_gradients(Graph& graph, std::span<const Value> keep) {
  for (const bool residual : {true, false}) rewrite_matches(ConvNorms(graph, keep, residual), graph);
}

}  // namespace headroom
