// Softmax over the last axis and the cross-entropy of logits, with their gradients. Each row's maximum is
// taken off first, so that no exp overflows.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/index_check.h"
#include "kernels/loop_nest.h"

namespace headroom::cpu {
namespace {

using Array = Eigen::Map<Eigen::ArrayXf>;
using ConstArray = Eigen::Map<const Eigen::ArrayXf>;

// Elements that go through the steps of a softmax together: they stay in the first-level cache, and short
// rows share a vectorized exp.
constexpr int64_t kSoftmaxBlockElements = 4096;

struct RowsOf {
  RowsOf(int64_t n, int64_t rows) : extent(n), count(rows) {}
  explicit RowsOf(const Shape& shape)
      : RowsOf(shape.last(), shape.last() == 0 ? 0 : shape.elements() / shape.last()) {}
  int64_t extent, count;
};

// Finds the row of a mask that is added to a row: masks broadcast along leading axes.
class MaskRows {
 public:
  MaskRows(const Shape& mask, const Shape& x) : axes_(x.rank() - 1) {
    const Strides strides = broadcast_strides(mask, x);
    for (int axis = 0; axis < axes_; ++axis) {
      extents_[static_cast<size_t>(axis)] = x[axis];
      strides_[static_cast<size_t>(axis)] = strides[static_cast<size_t>(axis)];
    }
  }
  int64_t offset(int64_t row) const {
    int64_t offset = 0;
    for (auto axis = static_cast<size_t>(axes_); axis-- > 0; row /= extents_[axis])
      offset += row % extents_[axis] * strides_[axis];
    return offset;
  }

 private:
  int axes_;
  Strides extents_{}, strides_{};
};

// y may be x.
void softmax_rows(const Softmax& op, const float* x, const float* mask, const MaskRows* mask_rows, float* y,
                  RowsOf rows) {
  const int64_t n = rows.extent,
                rows_per_block = std::max<int64_t>(1, kSoftmaxBlockElements / std::max<int64_t>(1, n));
  for (int64_t begin = 0; begin < rows.count; begin += rows_per_block) {
    const int64_t end = std::min(begin + rows_per_block, rows.count);
    for (int64_t row = begin; row < end; ++row) {
      Array values(y + row * n, n);
      if (mask != nullptr) {
        values = ConstArray(x + row * n, n) * op.scale + ConstArray(mask + mask_rows->offset(row), n);
      } else {
        values = ConstArray(x + row * n, n) * op.scale;
      }
      const float largest = values.maxCoeff<Eigen::PropagateNaN>();
      values -= largest;
    }
    Array block(y + begin * n, (end - begin) * n);
    block = block.exp();
    for (int64_t row = begin; row < end; ++row) {
      Array values(y + row * n, n);
      const float sum = values.sum();
      if (op.zero_nan_rows && std::isnan(sum)) {
        values = 0;
      } else {
        values *= 1 / sum;
      }
    }
  }
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Softmax& op, const Request& request) {
  const Shape& x = request.inputs[0].shape;
  const MaskRows mask_rows(request.inputs.back().shape, x);
  return function_kernel([op, mask_rows, rows = RowsOf(x)](const Call& call) {
    softmax_rows(op, call.in(0), call.inputs.size() > 1 ? call.in(1) : nullptr, &mask_rows, call.out(), rows);
  });
}

std::unique_ptr<Kernel> make_kernel(const SoftmaxGrad& op, const Request& request) {
  return function_kernel([scale = op.scale, rows = RowsOf(request.inputs[0].shape)](const Call& call) {
    const int64_t n = rows.extent;
    for (int64_t row = 0; row < rows.count; ++row) {
      const ConstArray dy(call.in(0) + row * n, n), y(call.in(1) + row * n, n);
      const float product = (dy * y).sum();
      Array(call.out() + row * n, n) = scale * (dy - product) * y;
    }
  });
}

std::unique_ptr<Kernel> make_kernel(const CrossEntropy& op, const Request& request) {
  const Shape& shape = request.inputs[0].shape;
  return function_kernel([rows = RowsOf(shape), classes = op.classes_of(shape)](const Call& call) {
    const int64_t n = rows.extent;
    const int32_t* labels = call.in<int32_t>(1);
    check_indices(CrossEntropy::kTraits.name, "label", labels, rows.count, classes);
    for (int64_t row = 0; row < rows.count; ++row) {
      const ConstArray logits(call.in(0) + row * n, classes);
      const float largest = logits.maxCoeff<Eigen::PropagateNaN>();
      const float sum = (logits - largest).exp().sum();
      call.out()[row] = std::log(sum) - (logits[labels[row]] - largest);
    }
  });
}

std::unique_ptr<Kernel> make_kernel(const CrossEntropyGrad& op, const Request& request) {
  const Shape& shape = request.inputs[0].shape;
  const int64_t classes = CrossEntropy{op.classes}.classes_of(shape);
  return function_kernel([classes, rows = RowsOf(shape)](const Call& call) {
    const int64_t n = rows.extent;
    const int32_t* labels = call.in<int32_t>(1);
    // Before the logits are overwritten, in case it works in place.
    check_indices(CrossEntropyGrad::kTraits.name, "label", labels, rows.count, classes);
    if (classes == n) {
      softmax_rows(Softmax{}, call.in(0), nullptr, nullptr, call.out(), rows);
    } else {
      for (int64_t row = 0; row < rows.count; ++row) {
        softmax_rows(Softmax{}, call.in(0) + row * n, nullptr, nullptr, call.out() + row * n, {classes, 1});
        std::fill(call.out() + row * n + classes, call.out() + (row + 1) * n, 0.0f);
      }
    }
    for (int64_t row = 0; row < rows.count; ++row) {
      float* dlogits = call.out() + row * n;
      dlogits[labels[row]] -= 1;
      Array(dlogits, classes) *= call.in(2)[row];
    }
  });
}

}  // namespace headroom::cpu
