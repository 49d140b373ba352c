// Convolutions whose filters have a row for each result, (K,KH,KW,C/groups): they run the kernels for filters
// (KH,KW,C/groups,K) on a transposed copy.
#pragma once

#include <array>
#include <memory>

#include "base/bytes.h"
#include "kernels/cpu/cpu_kernels.h"

namespace headroom::cpu {

inline constexpr int64_t kFilterAlignment = 256;  // bytes, as device memory has

// to (columns,rows) = from (rows,columns)
inline void transpose(const float* from, int64_t rows, int64_t columns, float* to) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column)
      to[column * rows + row] = from[row * columns + column];
  }
}

inline Conv2d by_our_order(Conv2d conv) {
  conv.filter_by_result = false;
  return conv;
}

// The kernel of `op`, which reads images and a filter of our order, for a filter of rows, turned in scratch.
template <typename Op>
std::unique_ptr<Kernel> read_filter_rows(const Op& op, const Conv2d& conv, const Request& request) {
  const int64_t results = request.inputs[1].shape[0];
  const TensorSpec filter{DType::kF32, conv_filter_shape(conv, request.inputs[1].shape)};
  const std::array<TensorSpec, 2> operands = {request.inputs[0], filter};
  const std::shared_ptr<Kernel> kernel = make_kernel(op, {operands, request.outputs, request.settings});
  const int64_t bytes = round_up(filter.bytes(), kFilterAlignment);
  return function_kernel(
      [=](const Call& call) {
        float* const turned = call.scratch<float>();
        if (results > 0) transpose(call.in(1), results, filter.shape.elements() / results, turned);
        const TensorView views[] = {call.inputs[0], {turned, filter}};
        kernel->run(views, call.outputs, call.scratch<std::byte>() + bytes, call.stream);
      },
      bytes + kernel->workspace_bytes());
}

}  // namespace headroom::cpu
