// Ops that only move elements: each is one strided copy, except for elements that it sets to zero.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"
#include "kernels/loop_nest.h"

namespace headroom::cpu {
namespace {

// Copies operand 0 to operand 1 of the nest.
template <typename T>
void copy_rows(const LoopNest<2>& nest, const T* from, T* to) {
  const int64_t n = nest.row_extent();
  const int64_t from_step = nest.row_strides()[0], to_step = nest.row_strides()[1];
  nest.for_each_row([&](const auto& at) {
    const T* x = from + at[0];
    T* y = to + at[1];
    if (from_step == 1 && to_step == 1) {
      std::memcpy(y, x, static_cast<size_t>(n) * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) y[i * to_step] = x[i * from_step];
    }
  });
}

// Copies words between layouts that are dense along different axes: by squares, transposed in registers.
class SquareCopy {
 public:
  static std::optional<SquareCopy> of(const LoopNest<2>& nest) {
    constexpr int64_t kLeast = 8;  // of a side: with less, most of a square would be empty
    const auto [from_step, to_step] = nest.row_strides();
    if (from_step <= 1 || to_step != 1 || nest.row_extent() < kLeast) return std::nullopt;
    for (int axis = 1; axis < nest.axis_count(); ++axis) {
      if (nest.strides(axis)[0] == 1 && nest.extent(axis) >= kLeast) return SquareCopy(nest, axis);
    }
    return std::nullopt;
  }

  void operator()(const float* from, float* to) const {
    others_.for_each_row([&](const auto& at) {
      for (int64_t i = 0; i < others_.row_extent(); ++i) {
        matrix(from + at[0] + i * others_.row_strides()[0], to + at[1] + i * others_.row_strides()[1]);
      }
    });
  }

 private:
  SquareCopy(const LoopNest<2>& nest, int axis)
      : rows_(nest.row_extent()),
        columns_(nest.extent(axis)),
        from_step_(nest.row_strides()[0]),
        to_step_(nest.strides(axis)[1]),
        others_(others_of(nest, axis)) {}

  static LoopNest<2> others_of(const LoopNest<2>& nest, int axis) {
    std::vector<int64_t> extents;
    std::array<Strides, 2> strides{};
    for (int other = nest.axis_count() - 1; other > 0; --other) {
      if (other == axis) continue;
      for (size_t n = 0; n < 2; ++n) strides[n][extents.size()] = nest.strides(other)[n];
      extents.push_back(nest.extent(other));
    }
    return {Shape(std::span<const int64_t>(extents)), strides};
  }

  // from (rows, columns) -> to (columns, rows)
  void matrix(const float* from, float* to) const {
    const int64_t from_step = from_step_, to_step = to_step_;  // in registers while `to` is written
    for (int64_t column = 0; column < columns_; column += kLanes) {
      const int64_t width = std::min<int64_t>(kLanes, columns_ - column);
      for (int64_t row = 0; row < rows_; row += kLanes) {
        const int64_t height = std::min<int64_t>(kLanes, rows_ - row);
        const float* const x = from + row * from_step + column;
        float* const y = to + column * to_step + row;
        Vec square[kLanes];
        if (width == kLanes && height == kLanes) {
          for (int i = 0; i < kLanes; ++i) square[i] = load(x + i * from_step);
          transpose(square);
          for (int i = 0; i < kLanes; ++i) store(y + i * to_step, square[i]);
        } else {
          for (int i = 0; i < kLanes; ++i)
            square[i] = i < height ? load_some(x + i * from_step, width) : Vec{};
          transpose(square);
          for (int i = 0; i < width; ++i) store_some(y + i * to_step, square[i], height);
        }
      }
    }
  }

  int64_t rows_, columns_, from_step_, to_step_;
  LoopNest<2> others_;
};

// A copy for any dtype; the offsets of the first element are in elements.
class StridedCopy {
 public:
  StridedCopy(const LoopNest<2>& nest, DType dtype, int64_t from_offset = 0, int64_t to_offset = 0)
      : nest_(nest),
        squares_(element_bytes(dtype) == 4 ? SquareCopy::of(nest) : std::nullopt),
        element_bytes_(element_bytes(dtype)),
        dense_bytes_(is_dense(nest) ? static_cast<size_t>(nest.row_extent() * element_bytes_) : 0),
        from_offset_(from_offset),
        to_offset_(to_offset) {}

  void operator()(const void* from, void* to) const {
    if (dense_bytes_ > 0) {
      std::memcpy(static_cast<std::byte*>(to) + to_offset_ * element_bytes_,
                  static_cast<const std::byte*>(from) + from_offset_ * element_bytes_, dense_bytes_);
    } else if (squares_) {
      (*squares_)(static_cast<const float*>(from) + from_offset_, static_cast<float*>(to) + to_offset_);
    } else if (element_bytes_ == 1) {
      copy(static_cast<const uint8_t*>(from), static_cast<uint8_t*>(to));
    } else {
      copy(static_cast<const uint32_t*>(from), static_cast<uint32_t*>(to));
    }
  }

 private:
  static bool is_dense(const LoopNest<2>& nest) {
    return nest.axis_count() == 1 && nest.row_strides() == LoopNest<2>::Offsets{1, 1};
  }
  template <typename T>
  void copy(const T* from, T* to) const {
    copy_rows(nest_, from + from_offset_, to + to_offset_);
  }

  LoopNest<2> nest_;
  std::optional<SquareCopy> squares_;
  int64_t element_bytes_;
  size_t dense_bytes_;  // of a copy that is one row; 0 for another
  int64_t from_offset_, to_offset_;
};

// The strides of every steps[axis]-th element.
Strides stepped(Strides strides, std::span<const int64_t> steps) {
  for (size_t axis = 0; axis < steps.size(); ++axis) strides[axis] *= steps[axis];
  return strides;
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Reshape&, const Request& request) {
  return function_kernel([bytes = static_cast<size_t>(request.inputs[0].bytes())](const Call& call) {
    const void* x = call.inputs[0].data;
    if (bytes > 0 && x != call.outputs[0].data) std::memcpy(call.outputs[0].data, x, bytes);
  });
}

std::unique_ptr<Kernel> make_kernel(const CopyToDevice&, const Request& request) {
  return make_kernel(Reshape{request.outputs[0].shape}, request);
}

std::unique_ptr<Kernel> make_kernel(const Transpose& op, const Request& request) {
  const Strides permuted = transposed_strides(request.inputs[0].shape, op.axes);
  const Shape& shape = request.outputs[0].shape;
  const StridedCopy copy(LoopNest<2>(shape, {permuted, strides_of(shape)}), request.inputs[0].dtype);
  return function_kernel([=](const Call& call) { copy(call.inputs[0].data, call.outputs[0].data); });
}

std::unique_ptr<Kernel> make_kernel(const Concat& op, const Request& request) {
  const Strides strides = strides_of(request.outputs[0].shape);
  std::vector<StridedCopy> copies;
  int64_t offset = 0;
  for (const TensorSpec& input : request.inputs) {
    copies.emplace_back(LoopNest<2>(input.shape, {strides_of(input.shape), strides}), input.dtype, 0, offset);
    offset += input.shape[op.axis] * strides[static_cast<size_t>(op.axis)];
  }
  return function_kernel([copies = std::move(copies)](const Call& call) {
    for (size_t i = 0; i < copies.size(); ++i) copies[i](call.inputs[i].data, call.outputs[0].data);
  });
}

std::unique_ptr<Kernel> make_kernel(const Slice& op, const Request& request) {
  const Strides strides = strides_of(request.inputs[0].shape);
  const Shape& shape = request.outputs[0].shape;
  const StridedCopy copy(LoopNest<2>(shape, {stepped(strides, op.steps), strides_of(shape)}),
                         request.inputs[0].dtype, offset_of(op.begin, strides));
  return function_kernel([=](const Call& call) { copy(call.inputs[0].data, call.outputs[0].data); });
}

std::unique_ptr<Kernel> make_kernel(const SliceGrad& op, const Request& request) {
  const Strides strides = strides_of(request.outputs[0].shape);
  const Shape& shape = request.inputs[0].shape;
  const StridedCopy copy(LoopNest<2>(shape, {strides_of(shape), stepped(strides, op.steps)}),
                         request.inputs[0].dtype, 0, offset_of(op.begin, strides));
  return function_kernel([=, bytes = static_cast<size_t>(request.outputs[0].bytes())](const Call& call) {
    if (bytes > 0) std::memset(call.outputs[0].data, 0, bytes);
    copy(call.inputs[0].data, call.outputs[0].data);
  });
}

std::unique_ptr<Kernel> make_kernel(const BroadcastTo&, const Request& request) {
  const Shape& shape = request.outputs[0].shape;
  const StridedCopy copy(
      LoopNest<2>(shape, {broadcast_strides(request.inputs[0].shape, shape), strides_of(shape)}),
      request.inputs[0].dtype);
  return function_kernel([=](const Call& call) { copy(call.inputs[0].data, call.outputs[0].data); });
}

std::unique_ptr<Kernel> make_kernel(const Fill& op, const Request& request) {
  return function_kernel([value = op.value, n = request.outputs[0].shape.elements()](const Call& call) {
    std::fill_n(call.out(), n, value);
  });
}

}  // namespace headroom::cpu
