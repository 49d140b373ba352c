// Ops that only move elements: each is one strided copy, except for elements that it sets to zero.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
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

// A copy for any dtype; the offsets of the first element are in elements.
struct StridedCopy {
  LoopNest<2> nest;
  DType dtype;
  int64_t from_offset = 0;
  int64_t to_offset = 0;

  void operator()(const void* from, void* to) const {
    if (element_bytes(dtype) == 1) {
      copy(static_cast<const uint8_t*>(from), static_cast<uint8_t*>(to));
    } else {
      copy(static_cast<const uint32_t*>(from), static_cast<uint32_t*>(to));
    }
  }

 private:
  template <typename T>
  void copy(const T* from, T* to) const {
    copy_rows(nest, from + from_offset, to + to_offset);
  }
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
  const StridedCopy copy{LoopNest<2>(shape, {permuted, strides_of(shape)}), request.inputs[0].dtype};
  return function_kernel([=](const Call& call) { copy(call.inputs[0].data, call.outputs[0].data); });
}

std::unique_ptr<Kernel> make_kernel(const Concat& op, const Request& request) {
  const Strides strides = strides_of(request.outputs[0].shape);
  std::vector<StridedCopy> copies;
  int64_t offset = 0;
  for (const TensorSpec& input : request.inputs) {
    copies.push_back({LoopNest<2>(input.shape, {strides_of(input.shape), strides}), input.dtype, 0, offset});
    offset += input.shape[op.axis] * strides[static_cast<size_t>(op.axis)];
  }
  return function_kernel([copies = std::move(copies)](const Call& call) {
    for (size_t i = 0; i < copies.size(); ++i) copies[i](call.inputs[i].data, call.outputs[0].data);
  });
}

std::unique_ptr<Kernel> make_kernel(const Slice& op, const Request& request) {
  const Strides strides = strides_of(request.inputs[0].shape);
  const Shape& shape = request.outputs[0].shape;
  const StridedCopy copy{LoopNest<2>(shape, {stepped(strides, op.steps), strides_of(shape)}),
                         request.inputs[0].dtype, offset_of(op.begin, strides)};
  return function_kernel([=](const Call& call) { copy(call.inputs[0].data, call.outputs[0].data); });
}

std::unique_ptr<Kernel> make_kernel(const SliceGrad& op, const Request& request) {
  const Strides strides = strides_of(request.outputs[0].shape);
  const Shape& shape = request.inputs[0].shape;
  const StridedCopy copy{LoopNest<2>(shape, {strides_of(shape), stepped(strides, op.steps)}),
                         request.inputs[0].dtype, 0, offset_of(op.begin, strides)};
  return function_kernel([=, bytes = static_cast<size_t>(request.outputs[0].bytes())](const Call& call) {
    if (bytes > 0) std::memset(call.outputs[0].data, 0, bytes);
    copy(call.inputs[0].data, call.outputs[0].data);
  });
}

std::unique_ptr<Kernel> make_kernel(const BroadcastTo&, const Request& request) {
  const Shape& shape = request.outputs[0].shape;
  const StridedCopy copy{
      LoopNest<2>(shape, {broadcast_strides(request.inputs[0].shape, shape), strides_of(shape)}),
      request.inputs[0].dtype};
  return function_kernel([=](const Call& call) { copy(call.inputs[0].data, call.outputs[0].data); });
}

std::unique_ptr<Kernel> make_kernel(const Fill& op, const Request& request) {
  return function_kernel([value = op.value, n = request.outputs[0].shape.elements()](const Call& call) {
    std::fill_n(call.out(), n, value);
  });
}

}  // namespace headroom::cpu
