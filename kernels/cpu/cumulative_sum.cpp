// Running sums along an axis; those of floats in double.
#include <type_traits>

#include "kernels/cpu/cpu_kernels.h"

namespace headroom::cpu {
namespace {

template <typename T>
std::unique_ptr<Kernel> make_cumulative_sum(const CumulativeSum& op, const Shape& shape) {
  // (outer, extent, inner)
  int64_t inner = 1;
  for (int axis = op.axis + 1; axis < shape.rank(); ++axis) inner *= shape[axis];
  const int64_t extent = shape[op.axis], lines = shape.elements() == 0 ? 0 : shape.elements() / extent;
  const int64_t step = op.reverse ? -inner : inner, start = op.reverse ? (extent - 1) * inner : 0;
  // Whole numbers wrap around.
  using Sum = std::conditional_t<std::is_same_v<T, float>, double, uint32_t>;
  return function_kernel([=, exclusive = op.exclusive](const Call& call) {
    for (int64_t line = 0; line < lines; ++line) {
      int64_t at = line / inner * extent * inner + line % inner + start;
      Sum sum = 0;
      for (int64_t i = 0; i < extent; ++i, at += step) {
        const Sum before = sum;
        sum += static_cast<Sum>(call.in<T>(0)[at]);
        call.out<T>()[at] = static_cast<T>(exclusive ? before : sum);
      }
    }
  });
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const CumulativeSum& op, const Request& request) {
  const TensorSpec& x = request.inputs[0];
  return x.dtype == DType::kF32 ? make_cumulative_sum<float>(op, x.shape)
                                : make_cumulative_sum<int32_t>(op, x.shape);
}

}  // namespace headroom::cpu
