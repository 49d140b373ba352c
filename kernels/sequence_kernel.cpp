#include "kernels/sequence_kernel.h"

#include <algorithm>

#include "kernels/function_kernel.h"

namespace headroom {

std::unique_ptr<Kernel> make_sequence_kernel(std::span<const SequencePart> parts,
                                             std::span<const TensorSpec> inputs,
                                             std::span<const TensorSpec> outputs, const MakeKernel& make) {
  struct Step {
    std::unique_ptr<Kernel> kernel;
    std::vector<int> inputs, outputs;
    std::vector<TensorView> input_views, output_views;  // tensors of the present run
  };
  const auto operand = [](auto first, auto rest, int number) {
    const auto i = static_cast<size_t>(number);
    return i < first.size() ? first[i] : rest[i - first.size()];
  };
  const auto steps = std::make_shared<std::vector<Step>>();
  int64_t workspace_bytes = 0;
  for (const SequencePart& part : parts) {
    std::vector<TensorSpec> input_specs, output_specs;
    for (int number : part.inputs) input_specs.push_back(operand(inputs, outputs, number));
    for (int number : part.outputs) output_specs.push_back(operand(inputs, outputs, number));
    steps->push_back({make(part.op, input_specs, output_specs), part.inputs, part.outputs,
                      std::vector<TensorView>(input_specs.size()),
                      std::vector<TensorView>(output_specs.size())});
    workspace_bytes = std::max(workspace_bytes, steps->back().kernel->workspace_bytes());
  }
  return function_kernel(
      [=](const KernelCall& call) {
        const auto view_of = [&](int number) { return operand(call.inputs, call.outputs, number); };
        for (Step& step : *steps) {
          std::transform(step.inputs.begin(), step.inputs.end(), step.input_views.begin(), view_of);
          std::transform(step.outputs.begin(), step.outputs.end(), step.output_views.begin(), view_of);
          step.kernel->run(step.input_views, step.output_views, call.workspace, call.stream);
        }
      },
      workspace_bytes);
}

std::span<const SequencePart> parts_of_classifier_head() {
  enum { kX, kW1, kB1, kW2, kB2, kLabels, kDLoss, kHidden, kLogits, kLoss, kDLogits, kDHidden, kDx };
  static const SequencePart parts[] = {
      {MatMul{}, {kX, kW1}, {kHidden}},
      {Binary{BinaryKind::kAdd}, {kHidden, kB1}, {kHidden}},
      {Unary{UnaryKind::kRelu}, {kHidden}, {kHidden}},
      {MatMul{}, {kHidden, kW2}, {kLogits}},
      {Binary{BinaryKind::kAdd}, {kLogits, kB2}, {kLogits}},
      {CrossEntropy{}, {kLogits, kLabels}, {kLoss}},
      {CrossEntropyGrad{}, {kLogits, kLabels, kDLoss}, {kDLogits}},
      {MatMul{false, true}, {kDLogits, kW2}, {kDHidden}},
      {UnaryGrad{UnaryKind::kRelu}, {kDHidden, kHidden}, {kDHidden}},
      {MatMul{false, true}, {kDHidden, kW1}, {kDx}},
  };
  return parts;
}

}  // namespace headroom
