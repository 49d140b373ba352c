// Several elementwise ops tile by tile: the values in between stay in the cache, and each op's own kernel
// computes them.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/reduced.h"
#include "kernels/loop_nest.h"

namespace headroom::cpu {
namespace {

constexpr int64_t kTile = 1024;  // elements; those of all values fit into a cache of 128 KiB
constexpr size_t kMaxValues = Expression::kMaxOperands + Expression::kMaxInstructions;
// The result and the index along the axis of the windows follow the operands.
constexpr size_t kResult = Expression::kMaxOperands, kIndex = kResult + 1;
using Nest = LoopNest<kIndex + 1>;

// Loops over the elements of an expression: `axes` of them are reduced.
Nest nest_of(const Expression& op, const Request& request, std::span<const int> axes) {
  Shape shape;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    Shape next;
    broadcast(shape, op.windows.shape_of(i, request.inputs[i].shape), &next);
    shape = next;
  }
  std::array<Strides, kIndex + 1> strides{};
  for (size_t i = 0; i < request.inputs.size(); ++i)
    strides[i] = broadcast_strides(request.inputs[i].shape, shape);
  strides[kResult] = reduced_strides(shape, axes);
  if (op.windows.axis_from_end >= 0)
    strides[kIndex][static_cast<size_t>(shape.rank() - 1 - op.windows.axis_from_end)] = 1;
  return {shape, strides};
}

// All loops of a nest but the innermost.
Nest rows_of(const Nest& nest) {
  std::vector<int64_t> extents;
  std::array<Strides, kIndex + 1> strides{};
  for (int axis = nest.axis_count() - 1; axis > 0; --axis) {
    for (size_t i = 0; i < strides.size(); ++i) strides[i][extents.size()] = nest.strides(axis)[i];
    extents.push_back(nest.extent(axis));
  }
  return {Shape(std::span<const int64_t>(extents)), strides};
}

// A tile is a part of a row, or several rows that are short.
class ExpressionKernel final : public Kernel {
 public:
  ExpressionKernel(const Expression& op, const Request& request)
      : ExpressionKernel(op, request, nest_of(op, request, {}), nullptr) {}
  ExpressionKernel(const ReducedExpression& op, const Request& request)
      : ExpressionKernel(op.of, request, nest_of(op.of, request, op.by.axes), &op.by) {}

 private:
  ExpressionKernel(const Expression& op, const Request& request, const Nest& nest, const Reduce* by)
      : op_(op),
        reduction_(by == nullptr ? std::nullopt
                                 : std::optional<Reduction>(std::in_place, by->kind, nest.elements(),
                                                            request.outputs[0].shape.elements())),
        nest_(nest),
        rows_(rows_of(nest_)),
        columns_of_tile_(std::clamp<int64_t>(nest_.row_extent(), 1, kTile)),
        rows_of_tile_(std::clamp<int64_t>(rows_.row_extent(), 1, kTile / columns_of_tile_)),
        tile_(columns_of_tile_ * rows_of_tile_),
        is_one_dense_tile_(by == nullptr && op.windows.axis_from_end < 0 && nest_.axis_count() == 1 &&
                           nest_.row_extent() == tile_ &&
                           std::all_of(nest_.row_strides().begin(),
                                       nest_.row_strides().begin() + static_cast<long>(op_.operands),
                                       [](int64_t step) { return step == 1; })) {
    const TensorSpec spec{DType::kF32, Shape({tile_})};
    views_.assign(kMaxValues, TensorView{nullptr, spec});
    operands_.fill(views_[0]);
    const std::vector<TensorSpec> specs(2, spec);
    for (const Instruction& step : op_.steps()) {
      const auto operands = std::span(specs).first(step.has_two_operands() ? 2 : 1);
      steps_.push_back(visit_op(step, [&](const auto& op_of_step) {
        return make_cpu_kernel(op_of_step, operands, std::span(specs).first(1), request.settings);
      }));
    }
    for (size_t i = 0; i < request.inputs.size(); ++i) {
      if (!op_.windows.has(i)) continue;
      const Shape& shape = request.inputs[i].shape;
      const int axis = shape.rank() - 1 - op_.windows.axis_from_end;
      // Along an axis of extent 1 an operand is broadcast, and does not move.
      const int64_t stride = shape[axis] == 1 ? 0 : strides_of(shape)[static_cast<size_t>(axis)];
      window_of_[i] = {shape[axis], stride};
    }
  }

 public:
  int64_t workspace_bytes() const override { return reduction_ ? reduction_->workspace_bytes() : 0; }
  void run(std::span<const TensorView> inputs, std::span<const TensorView> outputs, void* workspace,
           Stream stream) override {
    if (reduction_) reduction_->begin(workspace, outputs[0].as<float>());
    alignas(64) thread_local std::array<float, kMaxValues * kTile> scratch;  // Eigen's bits depend on that
    if (is_one_dense_tile_) {
      for (size_t i = 0; i < op_.operands; ++i) views_[i].data = inputs[i].data;
      compute(outputs[0].as<float>(), scratch, stream);
      return;
    }
    repeated_.fill(nullptr);
    const int64_t columns = nest_.row_extent(), rows = rows_.row_extent();
    rows_.for_each_row([&](const Nest::Offsets& at) {
      for (int64_t row = 0; row < rows; row += rows_of_tile_) {
        const int64_t height = std::min(rows_of_tile_, rows - row);
        for (int64_t column = 0; column < columns; column += columns_of_tile_) {
          const int64_t width = std::min(columns_of_tile_, columns - column), count = height * width;
          const auto offset_of = [&](size_t i) {
            return at[i] + row * rows_.row_strides()[i] + column * nest_.row_strides()[i];
          };
          part_ = {offset_of(kIndex), height, width};
          for (size_t i = 0; i < op_.operands; ++i) {
            const float* const x = inputs[i].as<const float>();
            float* const copy = &scratch[i * kTile];
            views_[i].data = op_.windows.has(i) ? windowed(i, x, offset_of(i), copy)
                                                : operand(i, x + offset_of(i), height, width, copy);
          }
          const int64_t to = offset_of(kResult);
          if (reduction_) {
            const float* terms = compute(nullptr, scratch, stream);
            for (int64_t r = 0; r < height; ++r, terms += width)
              reduction_->add(to + r * rows_.row_strides()[kResult], terms, width,
                              nest_.row_strides()[kResult] == 0);
            continue;
          }
          float* const y = outputs[0].as<float>() + to;
          const float* const result = compute(count == tile_ ? y : nullptr, scratch, stream);
          if (count < tile_) std::copy_n(result, count, y);
        }
      }
    });
    if (reduction_) reduction_->finish();
  }

 private:
  // A tile of operand i: where it lies if it is dense and whole, otherwise a copy. Later tiles take a copy
  // of the same row again.
  float* operand(size_t i, const float* x, int64_t height, int64_t width, float* to) {
    const int64_t step = nest_.row_strides()[i], row_step = rows_.row_strides()[i];
    const bool is_dense = step == 1 && (height == 1 || row_step == width);
    if (is_dense && height * width == tile_) return const_cast<float*>(x);  // only read
    if (row_step == 0) {
      if (repeated_[i] == x && width == columns_of_tile_) return to;
      repeated_[i] = width == columns_of_tile_ ? x : nullptr;
      height = rows_of_tile_;
    }
    for (int64_t row = 0; row < height; ++row, x += row_step) {
      step == 0 ? (void)std::fill_n(to + row * width, width, *x)
                : (void)std::copy_n(x, width, to + row * width);
    }
    return to;
  }

  // Calls f(row, first, end) for each row of the part: its columns whose index is in [begin, end).
  template <typename F>
  void for_columns_inside(int64_t begin, int64_t end, F f) const {
    const int64_t row_step = rows_.row_strides()[kIndex], column_step = nest_.row_strides()[kIndex];
    for (int64_t row = 0; row < part_.height; ++row) {
      const int64_t index = part_.index + row * row_step;
      if (column_step == 0) {
        const bool is_inside = begin <= index && index < end;
        f(row, int64_t{0}, is_inside ? part_.width : 0);
      } else {
        const int64_t first = std::clamp<int64_t>(begin - index, 0, part_.width);
        f(row, first, std::clamp<int64_t>(end - index, first, part_.width));
      }
    }
  }
  // The part of operand i where it lies, zeros around it.
  float* windowed(size_t i, const float* x, int64_t offset, float* to) const {
    const int64_t begin = op_.windows.begin[i], step = nest_.row_strides()[i];
    std::fill_n(to, part_.height * part_.width, 0.0f);
    for_columns_inside(begin, begin + window_of_[i].extent, [&](int64_t row, int64_t first, int64_t end) {
      const int64_t from = offset + row * rows_.row_strides()[i] - begin * window_of_[i].stride;
      for (int64_t column = first; column < end; ++column)
        to[row * part_.width + column] = x[from + column * step];
    });
    return to;
  }

  // Runs all steps; the last one writes to `y` unless that is null. Returns the last result.
  const float* compute(float* y, std::span<float> scratch, Stream stream) {
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Instruction& step = op_.instructions[i];
      const size_t id = op_.operands + i;
      const bool is_last = i + 1 == steps_.size();
      views_[id].data = is_last && y != nullptr ? y : &scratch[id * kTile];
      if (step.code == Instruction::Code::kInside) {
        const auto* const x = views_[step.a].as<const float>();
        auto* const result = views_[id].as<float>();
        std::fill_n(result, part_.height * part_.width, 0.0f);
        for_columns_inside(static_cast<int64_t>(step.alpha), static_cast<int64_t>(step.beta),
                           [&](int64_t row, int64_t first, int64_t end) {
                             std::copy(x + row * part_.width + first, x + row * part_.width + end,
                                       result + row * part_.width + first);
                           });
      } else if (!step.has_two_operands()) {
        steps_[i]->run({&views_[step.a], 1}, {&views_[id], 1}, nullptr, stream);
      } else {
        operands_[0].data = views_[step.a].data;
        operands_[1].data = views_[step.b].data;
        steps_[i]->run(operands_, {&views_[id], 1}, nullptr, stream);
      }
    }
    return views_[op_.operands + steps_.size() - 1].as<const float>();
  }

  struct Window {
    int64_t extent = 0, stride = 0;  // of an operand along the axis of the windows
  };
  struct Part {
    int64_t index = 0, height = 0, width = 0;  // index along that axis of the first element
  };

  const Expression op_;
  std::array<Window, Expression::kMaxOperands> window_of_{};
  Part part_;  // of the result that is being computed
  std::optional<Reduction> reduction_;
  const Nest nest_, rows_;
  const int64_t columns_of_tile_, rows_of_tile_, tile_;
  const bool is_one_dense_tile_;
  std::vector<std::unique_ptr<Kernel>> steps_;
  std::vector<TensorView> views_;                                  // of a tile of each value
  std::array<TensorView, 2> operands_{};                           // of a step
  std::array<const float*, Expression::kMaxOperands> repeated_{};  // the row that a copy repeats
};

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Expression& op, const Request& request) {
  return std::make_unique<ExpressionKernel>(op, request);
}
std::unique_ptr<Kernel> make_kernel(const ReducedExpression& op, const Request& request) {
  return std::make_unique<ExpressionKernel>(op, request);
}

}  // namespace headroom::cpu
