// Softmax over the last axis and the cross-entropy of logits, with their gradients. Each row's maximum is
// taken off first, so that no exp overflows.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/index_report.cuh"
#include "kernels/cuda/rows.cuh"

namespace headroom::cuda {
namespace {

// The maximum of a row and the sum of its exp(x - maximum). A row of n = 0 is one that there is not.
struct RowSums {
  float largest, sum;
};
// One pass: the sum is of what was the maximum so far, and brought to a larger one when that comes.
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

// y may be x, for a thread writes what it alone reads, and reads it first.
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
    float values[K][L], largest = -HUGE_VALF, sum = 0;
    for_each_group<L, K>(team, n, [&](int64_t at, int k) {
      Lanes<float, L> lanes = widened(part.groups[k]), added{};
      if (mask.data != nullptr) added = load<L>(mask + at);
#pragma unroll
      for (int i = 0; i < L; ++i) lanes.values[i] = in.scale * lanes.values[i] + added.values[i];
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

// A row whose label is no class has no loss; nobody reads it, for the fault ends the run.
struct CrossEntropyRow {
  Reals logits;
  const int32_t* labels;
  RealsOut loss;
  FaultSlot fault;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const Reals x = logits + row * n;
    const RowSums sums = sums_of_row(
        team, [&](int64_t i) { return x[i]; }, n);
    if (n == 0 || team.lane() != 0) return;
    const int32_t label = labels[row];
    if (in_range(label, n)) {
      loss.set(row, logf(sums.sum) - (x[label] - sums.largest));
    } else {
      loss.set(row, 0);
      report(fault, row, label);
    }
  }
};

// dlogits may be logits.
struct CrossEntropyGradRow {
  Reals logits;
  const int32_t* labels;
  Reals dloss;
  RealsOut dlogits;
  FaultSlot fault;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const Reals x = logits + row * n;
    const RealsOut dx = dlogits + row * n;
    const RowSums sums = sums_of_row(
        team, [&](int64_t i) { return x[i]; }, n);
    if (n == 0) return;
    const int32_t label = labels[row];
    if (team.lane() == 0 && !in_range(label, n)) report(fault, row, label);
    const float share = 1 / sums.sum, gradient = dloss[row];
    for_each_element(
        team, n, [&](int64_t i) { return x[i]; },
        [&](int64_t i, float value) {
          dx.set(i, (expf(value - sums.largest) * share - (i == label ? 1 : 0)) * gradient);
        });
  }
};

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
  return function_kernel([&device = request.device, shape = request.inputs[0].shape,
                          faults = index_faults(request, op.kTraits.name, "label",
                                                request.inputs[0].shape.last())](const Call& call) {
    launch_long_rows(device, call.stream,
                     CrossEntropyRow{operand(call, 0), call.in<int32_t>(1), result(call), faults->slot()},
                     shape);
  });
}

std::unique_ptr<Kernel> make_kernel(const CrossEntropyGrad& op, const Request& request) {
  return function_kernel([&device = request.device, shape = request.inputs[0].shape,
                          faults = index_faults(request, op.kTraits.name, "label",
                                                request.inputs[0].shape.last())](const Call& call) {
    launch_long_rows(device, call.stream,
                     CrossEntropyGradRow{operand(call, 0), call.in<int32_t>(1), operand(call, 2),
                                         result(call), faults->slot()},
                     shape);
  });
}

}  // namespace headroom::cuda
