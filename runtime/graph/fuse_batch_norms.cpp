#include <optional>

#include "runtime/graph/fuse_rules.h"
#include "runtime/graph/graph_view.h"

namespace headroom {
namespace {

// Node ids and values of one chain: y = relu(norm(x) [+ residual]); -1 for an absent part.
struct NormChain {
  int norm, add = -1, relu = -1;
  int residual = -1;  // a value
};

// y = relu(norm [+ residual]) becomes one node in the norm's place.
class NormChains : private GraphView {
 public:
  using GraphView::GraphView;

  std::optional<NormChain> match(int norm) const {
    const auto* op_of_norm = op<BatchNorm>(norm);
    if (!op_of_norm || op_of_norm->relu || graph().node(norm).inputs.size() > 3) return {};
    NormChain chain{norm};
    int next = only_reader(output(norm));
    if (const auto* sum = op<Binary>(next); sum && sum->kind == BinaryKind::kAdd) {
      const int a = input(next, 0), b = input(next, 1);
      chain.add = next;
      chain.residual = a == output(norm) ? b : a;
      // The later one of two added norms uses the other as its residual.
      if (a == b || shape(chain.residual) != shape(output(norm)) || maker(chain.residual) > norm) return {};
      next = only_reader(output(next));
    }
    const auto* unary = op<Unary>(next);
    if (!unary || unary->kind != UnaryKind::kRelu) return {};
    chain.relu = next;
    const bool is_overwritten = chain.residual >= 0 && changes(norm, next, {chain.residual});
    if (is_overwritten || !on_one_device({chain.norm, chain.add, chain.relu})) return {};
    return chain;
  }

  void rewrite(const NormChain& chain, Rewrite& nodes) const {
    const Node& norm = graph().node(chain.norm);
    Node fused{BatchNorm{op<BatchNorm>(chain.norm)->epsilon, true}, norm.name, norm.inputs, norm.outputs};
    if (chain.residual >= 0) fused.inputs.push_back(chain.residual);
    fused.outputs[0] = output(chain.relu);
    nodes.drop(chain.add);
    nodes.drop(chain.relu);
    nodes.put(chain.norm, std::move(fused));
  }
};

// Node ids: the gradient of a fused norm's relu, and that of the norm before the relu.
struct NormGradient {
  int relu_grad, norm_grad, norm;
};

// Merges relu's gradient and the following norm's gradient into one node at the first one's place.
class NormGradients : private GraphView {
 public:
  using GraphView::GraphView;

  std::optional<NormGradient> match(int relu_grad) const {
    const auto* unary = op<UnaryGrad>(relu_grad);
    if (!unary || unary->kind != UnaryKind::kRelu) return {};
    const int norm = maker(input(relu_grad, 1));
    const auto* op_of_norm = op<BatchNorm>(norm);
    if (!op_of_norm || !op_of_norm->relu || output(norm) != input(relu_grad, 1)) return {};
    const int masked = output(relu_grad);
    for (int reader : readers(masked)) {
      if (!op<BatchNormGrad>(reader) || op<BatchNormGrad>(reader)->relu || input(reader, 0) != masked)
        continue;
      const bool is_its_own = input(reader, 1) == input(norm, 0) && input(reader, 3) == output(norm, 1);
      if (!is_its_own || !on_one_device({relu_grad, reader, norm})) continue;
      // If there is no residual, no other node may read the masked gradient.
      const bool adds = graph().node(norm).inputs.size() > 3;
      if (!adds && (only_reader(masked) < 0 || kept(masked))) return {};
      if (changes(relu_grad, reader, {input(norm, 1), input(norm, 2)})) return {};
      return NormGradient{relu_grad, reader, norm};
    }
    return {};
  }

  void rewrite(const NormGradient& gradient, Rewrite& nodes) const {
    const Node& norm_grad = graph().node(gradient.norm_grad);
    const bool adds = graph().node(gradient.norm).inputs.size() > 3;
    Node fused{BatchNormGrad{op<BatchNormGrad>(gradient.norm_grad)->epsilon, true, adds}, norm_grad.name,
               norm_grad.inputs, norm_grad.outputs};
    fused.inputs[0] = input(gradient.relu_grad, 0);
    fused.inputs.push_back(adds ? output(gradient.norm) : input(gradient.norm, 2));
    if (adds) fused.outputs.push_back(output(gradient.relu_grad));
    nodes.drop(gradient.norm_grad);
    nodes.put(gradient.relu_grad, std::move(fused));
  }
};

// Node ids: the sum of the gradients of two branches, and its only reader, the gradient of a norm with relu
// and a residual.
struct BranchSum {
  int sum, norm_grad;
};

// The gradient of such a norm adds the branches itself.
class BranchSums : private GraphView {
 public:
  using GraphView::GraphView;

  std::optional<BranchSum> match(int sum) const {
    const auto* binary = op<Binary>(sum);
    if (!binary || binary->kind != BinaryKind::kAdd) return {};
    const int norm_grad = only_reader(output(sum));
    const auto* gradient = op<BatchNormGrad>(norm_grad);
    if (!gradient || !gradient->residual || graph().node(norm_grad).inputs.size() != 6) return {};
    const int a = input(sum, 0), b = input(sum, 1);
    const bool has_branches = input(norm_grad, 0) == output(sum) && shape(a) == shape(output(sum)) &&
                              shape(b) == shape(output(sum));
    if (!has_branches || changes(sum, norm_grad, {a, b}) || !on_one_device({sum, norm_grad})) return {};
    return BranchSum{sum, norm_grad};
  }

  void rewrite(const BranchSum& branches, Rewrite& nodes) const {
    Node fused = graph().node(branches.norm_grad);
    fused.inputs[0] = input(branches.sum, 0);
    fused.inputs.push_back(input(branches.sum, 1));
    nodes.drop(branches.sum);
    nodes.put(branches.norm_grad, std::move(fused));
  }
};

// Splits batch norms into their statistics and the normalization: recomputing a result to save memory then
// need not gather the statistics again. Gradients that mask by a result which they recompute from x also give
// that result to its readers.
void part_batch_norms(Graph& graph) {
  std::vector<Node> nodes;
  for (const Node& node : graph.nodes()) {
    const auto* norm = std::get_if<BatchNorm>(&node.op);
    if (const auto* gradient = std::get_if<BatchNormGrad>(&node.op);
        gradient && gradient->relu && !gradient->residual && !gradient->again) {
      Node giving = node;
      std::get<BatchNormGrad>(giving.op).again = true;
      ValueInfo result = graph.value(node.outputs[0]);
      result.name = node.name + "/result";
      giving.outputs.push_back(graph.new_result(std::move(result)).id);
      nodes.push_back(std::move(giving));
      continue;
    }
    if (!norm) {
      nodes.push_back(node);
      continue;
    }
    const int mean = node.outputs[1], variance = node.outputs[2];
    nodes.push_back(Node{
        BatchNormStatistics{}, node.name + "/statistics", {node.inputs[0]}, {mean, variance}, node.device});
    Node apply{
        BatchNormApply{norm->epsilon, norm->relu}, node.name, node.inputs, {node.outputs[0]}, node.device};
    apply.inputs.insert(apply.inputs.begin() + 3, {mean, variance});
    nodes.push_back(std::move(apply));
  }
  graph.replace_nodes(std::move(nodes));
}

}  // namespace

int fuse_batch_norms(Graph& graph, std::span<const Value> keep) {
  const int count = rewrite_matches(NormChains(graph, keep), graph);
  rewrite_matches(NormGradients(graph, keep), graph);
  rewrite_matches(BranchSums(graph, keep), graph);
  part_batch_norms(graph);
  return count;
}

}  // namespace headroom
