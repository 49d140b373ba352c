#include "kernels/sequence_kernel.h"

#include <algorithm>
#include <utility>

namespace headroom {
namespace {

class SequenceKernel final : public Kernel {
 public:
  SequenceKernel(std::span<const SequencePart> parts, std::span<const TensorSpec> inputs,
                 std::span<const TensorSpec> outputs, const MakeKernel& make)
      : input_count_(inputs.size()) {
    const auto spec_of = [&](int operand) {
      const auto i = static_cast<size_t>(operand);
      return i < inputs.size() ? inputs[i] : outputs[i - inputs.size()];
    };
    for (const SequencePart& part : parts) {
      std::vector<TensorSpec> input_specs, output_specs;
      for (int operand : part.inputs) input_specs.push_back(spec_of(operand));
      for (int operand : part.outputs) output_specs.push_back(spec_of(operand));
      Step step{make(part.op, input_specs, output_specs), part.inputs, part.outputs, {}, {}};
      step.input_views.resize(input_specs.size());
      step.output_views.resize(output_specs.size());
      workspace_bytes_ = std::max(workspace_bytes_, step.kernel->workspace_bytes());
      steps_.push_back(std::move(step));
    }
  }

  int64_t workspace_bytes() const override { return workspace_bytes_; }

  void run(std::span<const TensorView> inputs, std::span<const TensorView> outputs, void* workspace,
           Stream stream) override {
    const auto view_of = [&](int operand) {
      const auto i = static_cast<size_t>(operand);
      return i < input_count_ ? inputs[i] : outputs[i - input_count_];
    };
    for (Step& step : steps_) {
      std::transform(step.inputs.begin(), step.inputs.end(), step.input_views.begin(), view_of);
      std::transform(step.outputs.begin(), step.outputs.end(), step.output_views.begin(), view_of);
      step.kernel->run(step.input_views, step.output_views, workspace, stream);
    }
  }

 private:
  struct Step {
    std::unique_ptr<Kernel> kernel;
    std::vector<int> inputs, outputs;
    std::vector<TensorView> input_views, output_views;  // of the present run
  };
  const size_t input_count_;
  std::vector<Step> steps_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_sequence_kernel(std::span<const SequencePart> parts,
                                             std::span<const TensorSpec> inputs,
                                             std::span<const TensorSpec> outputs, const MakeKernel& make) {
  return std::make_unique<SequenceKernel>(parts, inputs, outputs, make);
}

std::span<const SequencePart> parts_of_classifier_head() {
  enum { kX, kW1, kB1, kW2, kB2, kLabels, kDLoss, kHidden, kLogits, kLoss, kDLogits, kDHidden, kDx };
  static const SequencePart kParts[] = {
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
  return kParts;
}

}  // namespace headroom
