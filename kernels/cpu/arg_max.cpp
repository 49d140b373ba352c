// The position of the maximum, and how often it is at the label.
#include "kernels/cpu/cpu_kernels.h"

namespace headroom::cpu {
namespace {

// Position of the first of the largest among n numbers that lie `stride` apart; of the first NaN if there is
// one.
int32_t arg_max(const float* x, int64_t n, int64_t stride) {
  int64_t best = 0;
  float largest = x[0];
  for (int64_t i = 1; i < n && largest == largest; ++i) {
    if (!(x[i * stride] <= largest)) {
      best = i;
      largest = x[i * stride];
    }
  }
  return static_cast<int32_t>(best);
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const ArgMax& op, const Request& request) {
  const Shape& x_shape = request.inputs[0].shape;
  int64_t outer = 1, inner = 1;
  for (int axis = 0; axis < op.axis; ++axis) outer *= x_shape[axis];
  for (int axis = op.axis + 1; axis < x_shape.rank(); ++axis) inner *= x_shape[axis];
  return function_kernel([=, n = x_shape[op.axis]](const Call& call) {
    const float* x = call.in(0);
    int32_t* y = call.out<int32_t>();
    for (int64_t i = 0; i < outer; ++i) {
      for (int64_t j = 0; j < inner; ++j) y[i * inner + j] = arg_max(x + i * n * inner + j, n, inner);
    }
  });
}

std::unique_ptr<Kernel> make_kernel(const Accuracy&, const Request& request) {
  return function_kernel(
      [rows = request.inputs[0].shape[0], classes = request.inputs[0].shape[1]](const Call& call) {
        const float* logits = call.in(0);
        const int32_t* labels = call.in<int32_t>(1);
        int64_t right = 0;
        for (int64_t row = 0; row < rows; ++row) {
          right += arg_max(logits + row * classes, classes, 1) == labels[row] ? 1 : 0;
        }
        *call.out() = static_cast<float>(static_cast<double>(right) / static_cast<double>(rows));
      });
}

}  // namespace headroom::cpu
