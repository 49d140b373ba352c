// Softmax over the last axis and the cross-entropy of logits, with their gradients. Each row's maximum is
// taken off first, so that no exp overflows.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/fast_math.cuh"
#include "kernels/cuda/index_report.cuh"
#include "kernels/cuda/rows.cuh"

namespace headroom::cuda {
namespace {

// The maximum of a row and the sum of its exp(x - maximum). A row of n = 0 is one that there is not.
struct RowSums {
  float largest, sum;
};
// A single pass: the sum is relative to the maximum so far, and rescaled for a larger one.
template <typename Team, typename Load>
__device__ RowSums sums_of_row(const Team& team, const Load& value_at, int64_t n) {
  float largest = -HUGE_VALF, sum = 0;
  for_each_element(team, n, value_at, [&](int64_t, float value) {
    if (value > largest) {
      sum = sum * expf(largest - value) + 1;
      largest = value;
    } else if (value != -HUGE_VALF) {  // NaN too
      sum += expf(value - largest);
    }
  });
  const float of_row = team.combine(largest, Larger());
  if (largest != -HUGE_VALF) sum *= expf(largest - of_row);  // NaN for an infinite maximum
  return {of_row, team.combine(sum, Add())};
}

// y may be x, because each thread reads the elements that it writes, and reads them first.
struct SoftmaxOperands {
  bool zero_nan_rows;
  float scale;
  Reals x, mask;  // mask is null without one
  StridedIndex<1, int64_t> mask_row;
  RealsOut y;

  __device__ Reals mask_of(int64_t row) const {
    return mask.data == nullptr ? mask : mask + mask_row(row).at[0];
  }
};
struct StreamedSoftmax {
  SoftmaxOperands in;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const Reals from = in.x + row * n, mask = in.mask_of(row);
    const RealsOut to = in.y + row * n;
    const auto masked = [&](int64_t i) { return in.scale * from[i] + (mask.data == nullptr ? 0 : mask[i]); };
    const RowSums sums = sums_of_row(team, masked, n);
    const float share = 1 / sums.sum;
    const bool is_zero = in.zero_nan_rows && !(sums.sum > 0);
    for_each_element(team, n, masked, [&](int64_t i, float value) {
      to.set(i, is_zero ? 0 : expf(value - sums.largest) * share);
    });
  }
};
template <int L, int K>
struct HeldSoftmax {
  SoftmaxOperands in;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const RowPart<L, K> part = fetch_row<L, K>(team, in.x + row * n, n);
    const Reals mask = in.mask_of(row);
    Stored<L> added[K];
    if (mask.data != nullptr) {
      for_each_group<L, K>(team, n, [&](int64_t at, int k) { added[k] = mask.template fetch<L>(at); });
    }
    float values[K][L], largest = -HUGE_VALF, sum = 0;
    for_each_group<L, K>(team, n, [&](int64_t, int k) {
      Lanes<float, L> lanes = widened(part.groups[k]), plus{};
      if (mask.data != nullptr) plus = widened(added[k]);
#pragma unroll
      for (int i = 0; i < L; ++i) lanes.values[i] = in.scale * lanes.values[i] + plus.values[i];
#pragma unroll
      for (int i = 0; i < L; ++i) largest = Larger()(largest, values[k][i] = lanes.values[i]);
    });
    largest = team.combine(largest, Larger());
    for_each_group<L, K>(team, n, [&](int64_t, int k) {
#pragma unroll
      for (int i = 0; i < L; ++i) sum += values[k][i] = expf(values[k][i] - largest);
    });
    sum = team.combine(sum, Add());
    const bool is_zero = in.zero_nan_rows && isnan(sum);
    const float share = 1 / sum;
    for_each_group<L, K>(team, n, [&](int64_t at, int k) {
      Lanes<float, L> lanes;
#pragma unroll
      for (int i = 0; i < L; ++i) lanes.values[i] = is_zero ? 0 : values[k][i] * share;
      store(in.y + (row * n + at), lanes);
    });
  }
};

// dx may be dy.
struct SoftmaxGradOperands {
  float scale;
  Reals dy, y;
  RealsOut dx;
};
struct StreamedSoftmaxGrad {
  SoftmaxGradOperands in;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const int64_t at = row * n;
    float product = 0;
    const auto load = [&](int64_t i) { return float2{in.dy[at + i], in.y[at + i]}; };
    for_each_element(team, n, load, [&](int64_t, float2 pair) { product += pair.x * pair.y; });
    product = team.combine(product, Add());
    for_each_element(team, n, load, [&](int64_t i, float2 pair) {
      in.dx.set(at + i, in.scale * (pair.x - product) * pair.y);
    });
  }
};
template <int L, int K>
struct HeldSoftmaxGrad {
  SoftmaxGradOperands in;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const RowPart<L, K> gradients = fetch_row<L, K>(team, in.dy + row * n, n);
    const RowPart<L, K> results = fetch_row<L, K>(team, in.y + row * n, n);
    float product = 0;
    for_each_group<L, K>(team, n, [&](int64_t, int k) {
      const Lanes<float, L> dy = widened(gradients.groups[k]), y = widened(results.groups[k]);
#pragma unroll
      for (int i = 0; i < L; ++i) product += dy.values[i] * y.values[i];
    });
    product = team.combine(product, Add());
    for_each_group<L, K>(team, n, [&](int64_t at, int k) {
      Lanes<float, L> dy = widened(gradients.groups[k]);
      const Lanes<float, L> y = widened(results.groups[k]);
#pragma unroll
      for (int i = 0; i < L; ++i) dy.values[i] = in.scale * (dy.values[i] - product) * y.values[i];
      store(in.dx + (row * n + at), dy);
    });
  }
};

// Calls use(place, numbers) for a thread's groups of L neighbors of the first n elements of a row, several
// loads at once. The last group may reach beyond n.
template <int L, typename Team, typename Use>
__device__ void for_each_vector(const Team& team, const Reals& row, int64_t n, const Use& use) {
  constexpr int kAtOnce = 4;
  const int64_t step = int64_t{L} * team.size();
  for (int64_t first = int64_t{L} * team.lane(); first < n; first += kAtOnce * step) {
    Packed<L> groups[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      groups[i] = fetch_packed<L>(row, min(first + i * step, (n - 1) / L * L));
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * step < n) use(first + i * step, widened(groups[i]));
    }
  }
}

// The larger of two; NaN if either is.
__device__ inline float larger(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float c = 0;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
#else
  return Larger()(a, b);
#endif
}

// exp(x - largest), of neighbors that are stored in 16 bits as few instructions: with expf() a loss over a
// vocabulary would take twice as long as memory.
template <int L>
class ExpBelow {
 public:
  explicit __device__ ExpBelow(float largest)
      : largest_(L == 8 ? -kLog2E * finite(largest) : finite(largest)) {}
  __device__ float operator()(float x) const {
    return L == 8 ? power_of_2(fmaf(x, kLog2E, largest_)) : expf(x - largest_);
  }

 private:
  // If all numbers of a row so far are -infinity, uses 0, so that differences are not NaN.
  static __device__ float finite(float largest) { return largest == -HUGE_VALF ? 0 : largest; }
  float largest_;
};

// Like sums_of_row, L neighbors at once.
template <int L, typename Team>
__device__ RowSums sums_of_classes(const Team& team, const Reals& row, int64_t classes) {
  float largest = -HUGE_VALF, sum = 0;
  for_each_vector<L>(team, row, classes, [&](int64_t at, Lanes<float, L> x) {
    if (at + L > classes) {
#pragma unroll
      for (int i = 0; i < L; ++i) x.values[i] = at + i < classes ? x.values[i] : -HUGE_VALF;
    }
    float of_group = x.values[0];
#pragma unroll
    for (int i = 1; i < L; ++i) of_group = larger(of_group, x.values[i]);
    if (of_group > largest) {
      sum *= ExpBelow<L>(of_group)(largest);
      largest = of_group;
    }
    const ExpBelow<L> exp_below(largest);
#pragma unroll
    for (int i = 0; i < L; ++i) sum += exp_below(x.values[i]);
  });
  const float of_row = team.combine(largest, Larger());
  if (largest != -HUGE_VALF) sum *= expf(largest - of_row);  // NaN for an infinite maximum
  return {of_row, team.combine(sum, Add())};
}

struct LogitRows {
  Reals logits;
  const int32_t* labels;
  int64_t columns, classes;  // sizes of a row; columns after the classes are padding
  FaultSlot fault;
};

// A row with an invalid label has no loss; it is not read, because the fault ends the run.
template <int L>
struct CrossEntropyRow {
  LogitRows in;
  RealsOut loss;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const Reals x = in.logits + row * in.columns;
    const RowSums sums = sums_of_classes<L>(team, x, n == 0 ? 0 : in.classes);
    if (n == 0 || team.lane() != 0) return;
    const int32_t label = in.labels[row];
    if (in_range(label, in.classes)) {
      loss.set(row, logf(sums.sum) - (x[label] - sums.largest));
    } else {
      loss.set(row, 0);
      report(in.fault, row, label);
    }
  }
};

// dlogits may be logits.
template <int L>
struct CrossEntropyGradRow {
  LogitRows in;
  Reals dloss;
  RealsOut dlogits;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const Reals x = in.logits + row * in.columns;
    const RealsOut dx = dlogits + row * in.columns;
    const RowSums sums = sums_of_classes<L>(team, x, n == 0 ? 0 : in.classes);
    if (n == 0) return;
    const int32_t label = in.labels[row];
    if (team.lane() == 0 && !in_range(label, in.classes)) report(in.fault, row, label);
    const float gradient = dloss[row], share = gradient / sums.sum;
    const ExpBelow<L> exp_below(sums.largest);
    for_each_vector<L>(team, x, in.columns, [&](int64_t at, Lanes<float, L> values) {
#pragma unroll
      for (int i = 0; i < L; ++i) values.values[i] = exp_below(values.values[i]) * share;
      if (at <= label && label < at + L) {
#pragma unroll
        for (int i = 0; i < L; ++i) values.values[i] -= at + i == label ? gradient : 0;
      }
      if (at + L > in.classes) {
#pragma unroll
        for (int i = 0; i < L; ++i) values.values[i] = at + i < in.classes ? values.values[i] : 0;
      }
      store(dx + at, values);
    });
  }
};

// Queues Row<L>{rows, operands...} for every row of logits.
template <template <int> typename Row, typename... Operands>
void launch_logits(const CudaGpu& device, const Call& call, const LogitRows& rows, const Shape& shape,
                   const Operands&... operands) {
  const int lanes = packed_lanes(call.inputs, call.outputs, shape.elements());
  const bool fits = shape.last() % lanes == 0 && are_aligned(call.inputs) && are_aligned(call.outputs);
  if (fits && lanes == 8) {
    launch_long_rows(device, call.stream, Row<8>{rows, operands...}, shape, 8);
  } else if (fits) {
    launch_long_rows(device, call.stream, Row<4>{rows, operands...}, shape, 4);
  } else {
    launch_long_rows(device, call.stream, Row<1>{rows, operands...}, shape);
  }
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Softmax& op, const Request& request) {
  const Shape& shape = request.inputs[0].shape;
  // Every row of x, by the axes before the last, in the mask.
  Shape rows = shape;
  if (shape.rank() > 0) rows = shape.with(shape.rank() - 1, 1);
  const LoopNest<1> nest(rows, {broadcast_strides(request.inputs.back().shape, shape)});
  return function_kernel([op, nest, &device = request.device, shape](const Call& call) {
    const Reals mask = call.inputs.size() > 1 ? operand(call, 1) : Reals();
    launch_rows<HeldSoftmax, StreamedSoftmax>(
        device, call,
        SoftmaxOperands{op.zero_nan_rows, op.scale, operand(call, 0), mask, StridedIndex<1, int64_t>(nest),
                        result(call)},
        shape);
  });
}

std::unique_ptr<Kernel> make_kernel(const SoftmaxGrad& op, const Request& request) {
  return function_kernel([op, &device = request.device, shape = request.inputs[0].shape](const Call& call) {
    launch_rows<HeldSoftmaxGrad, StreamedSoftmaxGrad>(
        device, call, SoftmaxGradOperands{op.scale, operand(call, 0), operand(call, 1), result(call)}, shape);
  });
}

std::unique_ptr<Kernel> make_kernel(const CrossEntropy& op, const Request& request) {
  const Shape& shape = request.inputs[0].shape;
  const int64_t classes = op.classes_of(shape);
  return function_kernel(
      [&device = request.device, shape, classes,
       faults = index_faults(request, op.kTraits.name, "label", classes)](const Call& call) {
        const LogitRows rows{operand(call, 0), call.in<int32_t>(1), shape.last(), classes, faults->slot()};
        launch_logits<CrossEntropyRow>(device, call, rows, shape, result(call));
      });
}

std::unique_ptr<Kernel> make_kernel(const CrossEntropyGrad& op, const Request& request) {
  const Shape& shape = request.inputs[0].shape;
  const int64_t classes = CrossEntropy{op.classes}.classes_of(shape);
  return function_kernel(
      [&device = request.device, shape, classes,
       faults = index_faults(request, op.kTraits.name, "label", classes)](const Call& call) {
        const LogitRows rows{operand(call, 0), call.in<int32_t>(1), shape.last(), classes, faults->slot()};
        launch_logits<CrossEntropyGradRow>(device, call, rows, shape, operand(call, 2), result(call));
      });
}

}  // namespace headroom::cuda
