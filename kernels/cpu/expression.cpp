// Several elementwise ops tile by tile: the values in between stay in the cache, and each op's own kernel
// computes them.
#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/loop_nest.h"

namespace headroom::cpu {
namespace {

constexpr int64_t kTile = 1024;  // elements; those of all values fit into a cache of 128 KiB
constexpr size_t kMaxValues = Expression::kMaxOperands + Expression::kMaxInstructions;
using Nest = LoopNest<Expression::kMaxOperands + 1>;  // the result last

Nest nest_of(const Request& request) {
  const Shape& shape = request.outputs[0].shape;
  std::array<Strides, Expression::kMaxOperands + 1> strides{};
  for (size_t i = 0; i < request.inputs.size(); ++i)
    strides[i] = broadcast_strides(request.inputs[i].shape, shape);
  strides.back() = strides_of(shape);
  return {shape, strides};
}

class ExpressionKernel final : public Kernel {
 public:
  ExpressionKernel(const Expression& op, const Request& request)
      : op_(op), nest_(nest_of(request)), tile_(std::clamp<int64_t>(nest_.row_extent(), 1, kTile)) {
    const TensorSpec spec{DType::kF32, Shape({tile_})};
    const std::vector<TensorSpec> specs(2, spec);
    for (const Instruction& step : op_.steps()) {
      const auto operands = std::span(specs).first(step.has_two_operands() ? 2 : 1);
      steps_.push_back(visit_op(step, [&](const auto& op_of_step) {
        return make_cpu_kernel(op_of_step, operands, std::span(specs).first(1), request.settings);
      }));
    }
  }

  void run(std::span<const TensorView> inputs, std::span<const TensorView> outputs, void* /*workspace*/,
           Stream stream) override {
    thread_local std::vector<float> scratch(kMaxValues * kTile);
    nest_.for_each_row([&](const Nest::Offsets& at) {
      for (int64_t begin = 0; begin < nest_.row_extent(); begin += tile_) {
        const int64_t count = std::min(tile_, nest_.row_extent() - begin);
        for (size_t i = 0; i < op_.operands; ++i) {
          const int64_t stride = nest_.row_strides()[i];
          const float* x = inputs[i].as<const float>() + at[i] + begin * stride;
          values_[i] = stride == 1 && count == tile_ ? const_cast<float*>(x)  // only read
                                                     : repeated(x, stride, count, &scratch[i * kTile]);
        }
        float* const y = outputs[0].as<float>() + at.back() + begin;
        const float* const result = compute(count == tile_ ? y : nullptr, scratch, stream);
        if (count < tile_) std::copy_n(result, count, y);
      }
    });
  }

 private:
  static float* repeated(const float* x, int64_t stride, int64_t count, float* to) {
    if (stride == 0) return std::fill_n(to, kTile, *x), to;
    std::copy_n(x, count, to);
    return to;
  }

  // Runs all steps; the last one writes to `y` unless that is null. Returns the last result.
  const float* compute(float* y, std::vector<float>& scratch, Stream stream) {
    const TensorSpec spec{DType::kF32, Shape({tile_})};
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Instruction& step = op_.instructions[i];
      const size_t id = op_.operands + i;
      const bool is_last = i + 1 == steps_.size();
      values_[id] = is_last && y != nullptr ? y : &scratch[id * kTile];
      const TensorView operands[] = {{values_[step.a], spec}, {values_[step.b], spec}};
      const TensorView result{values_[id], spec};
      steps_[i]->run(std::span(operands).first(step.has_two_operands() ? 2 : 1), {&result, 1}, nullptr,
                     stream);
    }
    return values_[op_.operands + steps_.size() - 1];
  }

  const Expression op_;
  const Nest nest_;
  const int64_t tile_;
  std::vector<std::unique_ptr<Kernel>> steps_;
  std::array<float*, kMaxValues> values_{};  // of one tile
};

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Expression& op, const Request& request) {
  return std::make_unique<ExpressionKernel>(op, request);
}

}  // namespace headroom::cpu
