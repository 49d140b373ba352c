#include "runtime/plan/step_cost.h"

#include <algorithm>

#include "runtime/graph/data_flow.h"

namespace headroom {

int64_t flops_of(const Graph& graph, const Node& node) {
  const auto shape = [&](int value) -> const Shape& { return graph.value(value).spec.shape; };
  const auto elements = [&](int value) { return shape(value).elements(); };
  const int64_t results = node.outputs.empty() ? 0 : elements(node.outputs[0]);
  // Each element of a filter meets every output of its channel.
  const auto conv = [](const Conv2d& op, const Shape& stored, int64_t outputs) {
    const Shape filter = conv_filter_shape(op, stored);
    return 2 * outputs * filter[0] * filter[1] * filter[2];
  };
  // Returns the number of a convolution's results before a following pool.
  const auto before_pool = [](const ConvBlock& block, int64_t pooled) {
    return block.pool ? pooled * block.pool->stride[0] * block.pool->stride[1] : pooled;
  };
  return std::visit(
      Overloaded{
          [&](const MatMul& op) {
            const Shape& a = shape(node.inputs[0]);
            return 2 * results * a[op.transpose_a ? a.rank() - 2 : a.rank() - 1];
          },
          [&](const Dense&) { return 2 * results * shape(node.inputs[0]).last(); },
          [&](const DenseFilterGrad&) { return 2 * results * shape(node.inputs[0])[0]; },
          // Two products that sum over pixels, two that give one for each.
          [&](const ConvNormGrad&) {
            return 4 * elements(node.inputs[2]) *
                   (shape(node.inputs[0]).last() + shape(node.inputs[2]).last());
          },
          [&](const ConvNormApply&) { return 2 * results * shape(node.inputs[0]).last(); },
          // Two products forward and two backward.
          [&](const ClassifierHead&) {
            return 4 * shape(node.inputs[0])[0] * (elements(node.inputs[1]) + elements(node.inputs[3]));
          },
          // Two products of as many terms as a head has, and five for their gradients.
          [&](const Attention& op) { return 4 * results * shape(node.inputs[op.packed ? 0 : 1])[1]; },
          [&](const AttentionGrad& op) {
            return 10 * elements(node.inputs[0]) * shape(node.inputs[op.packed ? 1 : 2])[1];
          },
          [&](const CachedAttention&) { return 4 * results * shape(node.inputs[CachedAttention::kK])[2]; },
          [&](const Conv2d& op) { return conv(op, shape(node.inputs[1]), results); },
          [&](const Conv2dInputGrad& op) {
            return conv(op.conv, shape(node.inputs[1]), elements(node.inputs[0]));
          },
          [&](const Conv2dFilterGrad& op) {
            return conv(op.conv, op.filter_shape, elements(node.inputs[1]));
          },
          [&](const ConvBias& op) { return conv(op.conv, shape(node.inputs[1]), results); },
          [&](const ConvBlock& op) { return conv(op.conv, shape(node.inputs[1]), before_pool(op, results)); },
          [&](const ConvBlockInputGrad& op) {
            return conv(op.block.conv, shape(node.inputs[2]),
                        before_pool(op.block, elements(node.inputs[0])));
          },
          [&](const ConvBlockFilterGrad& op) {
            return conv(op.block.conv, op.filter_shape, before_pool(op.block, elements(node.inputs[1])));
          },
          [&](const Reshape&) { return int64_t{0}; },
          [&](const CopyToDevice&) { return int64_t{0}; },
          [&](const Transpose&) { return int64_t{0}; },
          [&](const Concat&) { return int64_t{0}; },
          [&](const Slice&) { return int64_t{0}; },
          [&](const SliceGrad&) { return int64_t{0}; },
          [&](const Gather&) { return int64_t{0}; },
          [&](const ReplaceRows&) { return int64_t{0}; },
          [&](const BroadcastTo&) { return int64_t{0}; },
          [&](const Expression& op) { return op.length * results; },
          [&](const ReducedExpression& op) {
            int64_t terms = 0;  // of the largest operand, as few expressions are larger
            for (const int x : node.inputs) terms = std::max(terms, elements(x));
            return (op.of.length + 1) * terms;
          },
          [&](const auto&) { return results; },
      },
      node.op);
}

int64_t moved_bytes_of(const Graph& graph, const Node& node, const std::vector<bool>& is_read) {
  if (std::holds_alternative<Reshape>(node.op)) return 0;
  int64_t bytes = 0;
  // A gather reads as much of its table as it writes.
  const bool picks = std::holds_alternative<Gather>(node.op) || std::holds_alternative<TakeBatch>(node.op) ||
                     std::holds_alternative<Slice>(node.op);
  for (size_t i = picks ? 1 : 0; i < node.inputs.size(); ++i) {
    bytes += graph.value(node.inputs[i]).spec.bytes();
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const int output = node.outputs[i];
    const bool is_written = is_read.empty() || is_read[output] || !is_optional_output(node.op, i);
    if (is_written) bytes += (picks ? 2 : 1) * graph.value(output).spec.bytes();
  }
  return bytes;
}

std::vector<double> node_times_us(const Graph& graph, const DeviceSpeed& speed) {
  std::vector<double> times;
  const std::vector<bool> is_read = read_values(graph);
  for (const Node& node : graph.nodes()) {
    if (std::holds_alternative<Reshape>(node.op)) {
      times.push_back(0);
      continue;
    }
    const bool is_half = std::ranges::any_of(
        node.inputs, [&](int input) { return headroom::is_half(graph.value(input).spec.dtype); });
    const double flops_per_us = speed.flops_per_us * (is_half ? speed.half_factor : 1);
    const double arithmetic = static_cast<double>(flops_of(graph, node)) / flops_per_us;
    const double traffic = static_cast<double>(moved_bytes_of(graph, node, is_read)) / speed.bytes_per_us;
    times.push_back(speed.launch_us + std::max(arithmetic, traffic));
  }
  return times;
}

}  // namespace headroom
