// add, sub, mul, div with NumPy's broadcasting.
#include <functional>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/function_kernel.h"
#include "kernels/loop_nest.h"

namespace headroom::cpu {
namespace {

template <typename F>
std::unique_ptr<Kernel> make_binary(F f, const Request& request) {
  const Shape& shape = request.outputs[0].shape;
  const LoopNest<3> nest(shape, {broadcast_strides(request.inputs[0].shape, shape),
                                 broadcast_strides(request.inputs[1].shape, shape), strides_of(shape)});
  return function_kernel([=](const Call& call) {
    const int64_t n = nest.row_extent();
    const auto strides = nest.row_strides();
    // Along a row an operand is dense or one number, for dense operands have no other strides there. Equal
    // shapes and numbers make one row; a bias makes a row per pixel.
    const bool a_fixed = strides[0] == 0, b_fixed = strides[1] == 0;
    nest.for_each_row([&](const auto& at) {
      const float *a = call.in(0) + at[0], *b = call.in(1) + at[1];
      float* y = call.out() + at[2];
      if (a_fixed) {
        const float fixed = *a;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) y[i] = f(fixed, b[i]);
      } else if (b_fixed) {
        const float fixed = *b;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], fixed);
      } else {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
      }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Binary& op, const Request& request) {
  switch (op.kind) {
    case BinaryKind::kAdd:
      return make_binary(std::plus<float>(), request);
    case BinaryKind::kSub:
      return make_binary(std::minus<float>(), request);
    case BinaryKind::kMul:
      return make_binary(std::multiplies<float>(), request);
    case BinaryKind::kDiv:
      return make_binary(std::divides<float>(), request);
  }
  return nullptr;
}

}  // namespace headroom::cpu
