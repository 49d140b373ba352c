// Softmax over the last axis and the cross-entropy of logits, with their gradients. Each row's maximum is
// taken off first, so that no exp overflows.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/index_check.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/loop_nest.h"

namespace headroom::cpu {
namespace {

using Array = Eigen::Map<Eigen::ArrayXf>;
using ConstArray = Eigen::Map<const Eigen::ArrayXf>;

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

// y may be x. Lanes beyond a row hold -infinity, whose power is 0; NaN makes the sum NaN, and so all of a
// row.
void softmax_rows(const Softmax& op, const float* x, const float* mask, const MaskRows* mask_rows, float* y,
                  RowsOf rows) {
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  const int64_t n = rows.extent, whole = n / kLanes * kLanes, rest = n - whole;
  for (int64_t row = 0; row < rows.count; ++row, x += n, y += n) {
    const float* const added = mask == nullptr ? nullptr : mask + mask_rows->offset(row);
    Vec largest = Vec{} + kLeast, last = largest;
    const auto scaled = [&](auto load_from, int64_t i) {
      const Vec v = load_from(x + i) * op.scale;
      return added == nullptr ? v : v + load_from(added + i);
    };
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Vec v = scaled(load, i);
      store(y + i, v);
      largest = vec_max(v, largest);
    }
    if (rest > 0) {
      last = lanes_below(rest) ? scaled([&](const float* p) { return load_some(p, rest); }, whole) : last;
      largest = vec_max(last, largest);
    }
    const float most = combine_lanes(largest, vec_max);
    Vec sums = {};
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Vec v = exp(load(y + i) - most);
      store(y + i, v);
      sums += v;
    }
    if (rest > 0) {
      last = exp(last - most);
      sums += last;
    }
    const float sum = combine_lanes(sums, [](Vec a, Vec b) { return a + b; });
    const bool is_zero = op.zero_nan_rows && std::isnan(sum);
    const float factor = 1 / sum;
    for (int64_t i = 0; i < whole; i += kLanes) store(y + i, is_zero ? Vec{} : load(y + i) * factor);
    if (rest > 0) store_some(y + whole, is_zero ? Vec{} : last * factor, rest);
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
