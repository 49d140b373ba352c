// Sums, means and maxima over any axes, and the gradient of a maximum. Sums use double, as on the CPU: memory
// is slower, even if a GPU has few units for double.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cuda/reductions.cuh"

namespace headroom::cuda {
namespace {

struct Sum : Add {
  using Value = double;
  double factor;
  static constexpr double kNothing = 0;
  __device__ double operator()(double a, double b) const { return a + b; }
  __device__ float finish(double value) const { return static_cast<float>(value * factor); }
};
struct Max : Larger {
  using Value = float;
  static constexpr float kNothing = -HUGE_VALF;
  __device__ float finish(float value) const { return value; }
};

// The places of a tensor's elements by result and by term.
template <typename I>
struct Places {
  StridedIndex<1, I> results, terms;
};

// y (splits, results): partial results, or, of one split, the results.
template <typename F, typename From, typename To, typename I>
__global__ void reduce_terms(F f, ReductionLayout layout, Places<I> places, From x, To y) {
  const Share share = share_of(layout);
  typename F::Value value = F::kNothing;
  if (share.result < layout.results) {
    const From from = x + places.results(static_cast<I>(share.result)).at[0];
    for_each_term(
        share, [&](int64_t k) { return places.terms(static_cast<I>(k)).at[0]; },
        [&](I place) { return from[place]; },
        [&](I, auto term) { value = f(value, static_cast<typename F::Value>(term)); });
  }
  value = combine_block(value, layout.wide, f);
  if (threadIdx.x >= layout.wide || share.result >= layout.results) return;
  const int64_t at = blockIdx.y * layout.results + share.result;
  if constexpr (std::is_same_v<To, RealsOut>) {
    y.set(at, f.finish(value));
  } else {
    y[at] = value;
  }
}

// x's axes apart: those that stay, which number the results, and those that go, which number a result's
// terms.
class SplitAxes {
 public:
  SplitAxes(const Shape& x, const PerAxis<int>& axes)
      : SplitAxes(x, only(x, axes, false), only(x, axes, true)) {}

  template <typename I>
  Places<I> places() const {
    return {StridedIndex<1, I>(results_), StridedIndex<1, I>(terms_)};
  }
  ReductionLayout layout(const CudaGpu& device) const {
    return reduction_layout(device, results_count_, terms_count_,
                            terms_.row_strides()[0] == 1 ? Neighbors::kTerms : Neighbors::kResults);
  }
  int64_t elements() const { return results_count_ * terms_count_; }
  int64_t results() const { return results_count_; }
  int64_t terms() const { return terms_count_; }

 private:
  SplitAxes(const Shape& x, const Shape& results, const Shape& terms)
      : results_(results, {strides_of(x)}),
        terms_(terms, {strides_of(x)}),
        results_count_(results.elements()),
        terms_count_(terms.elements()) {}

  // x with extent 1 along the other axes.
  static Shape only(const Shape& x, std::span<const int> axes, bool listed) {
    Shape result = x;
    for (int axis = 0; axis < x.rank(); ++axis) {
      const bool found = std::find(axes.begin(), axes.end(), axis) != axes.end();
      if (found != listed) result = result.with(axis, 1);
    }
    return result;
  }

  LoopNest<1> results_, terms_;
  int64_t results_count_, terms_count_;
};

template <typename F>
std::unique_ptr<Kernel> make_reduction(F f, const SplitAxes& axes, const Request& request) {
  using Value = typename F::Value;
  const ReductionLayout layout = axes.layout(request.device);
  if (layout.results == 0) return function_kernel([](const Call&) {});
  if (layout.splits == 1) {
    return function_kernel([=](const Call& call) {
      with_index_type(axes.elements(), [&](auto type) {
        using I = decltype(type);
        launch(reduce_terms<F, Reals, RealsOut, I>, layout.grid(), kThreads, call.stream, f, layout,
               axes.places<I>(), operand(call, 0), result(call));
      });
    });
  }
  const SplitAxes partial_axes({layout.splits, layout.results}, {0});
  const ReductionLayout last = layout_of_partials(layout);
  return function_kernel(
      [=](const Call& call) {
        with_index_type(axes.elements(), [&](auto type) {
          using I = decltype(type);
          launch(reduce_terms<F, Reals, Value*, I>, layout.grid(), kThreads, call.stream, f, layout,
                 axes.places<I>(), operand(call, 0), call.scratch<Value>());
        });
        launch(reduce_terms<F, const Value*, RealsOut, uint32_t>, last.grid(), kThreads, call.stream, f, last,
               partial_axes.places<uint32_t>(), call.scratch<Value>(), result(call));
      },
      layout.splits * layout.results * static_cast<int64_t>(sizeof(Value)));
}

// A NaN is the maximum that it made.
__device__ bool ties(float value, float maximum) {
  return value == maximum || value != value;
}

// counts (splits, results): how many terms tie with the result.
template <typename I>
__global__ void count_ties(ReductionLayout layout, Places<I> places, Reals x, Reals y, int64_t* counts) {
  const Share share = share_of(layout);
  int64_t count = 0;
  if (share.result < layout.results) {
    const Reals from = x + places.results(static_cast<I>(share.result)).at[0];
    const float maximum = y[share.result];
    for_each_term(
        share, [&](int64_t k) { return places.terms(static_cast<I>(k)).at[0]; },
        [&](I place) { return from[place]; }, [&](I, float term) { count += ties(term, maximum) ? 1 : 0; });
  }
  count = combine_block(count, layout.wide, Add());
  if (threadIdx.x < layout.wide && share.result < layout.results) {
    counts[blockIdx.y * layout.results + share.result] = count;
  }
}

template <typename I>
__global__ void share_among_ties(ReductionLayout layout, Places<I> places, Reals x, Reals y, Reals dy,
                                 const int64_t* counts, RealsOut dx) {
  const Share share = share_of(layout);
  if (share.result >= layout.results) return;
  int64_t count = 0;
  for (int split = 0; split < layout.splits; ++split) count += counts[split * layout.results + share.result];
  const float maximum = y[share.result];
  const auto part = static_cast<float>(static_cast<double>(dy[share.result]) / static_cast<double>(count));
  const I first = places.results(static_cast<I>(share.result)).at[0];
  for_each_term(
      share, [&](int64_t k) { return first + places.terms(static_cast<I>(k)).at[0]; },
      [&](I place) { return x[place]; },
      [&](I place, float term) { dx.set(place, ties(term, maximum) ? part : 0); });
}

// Tensors of one launch: a kernel's arguments must stay small.
struct Tensors {
  static constexpr int kMax = 128;
  int count = 0;
  Reals x[kMax];
  int64_t elements[kMax];
};

// One column of blocks for each tensor; `finite` is 1 before.
__global__ void find_infinite(const __grid_constant__ Tensors tensors, uint8_t* finite) {
  const Reals x = tensors.x[blockIdx.y];
  bool all = true;
  for (int64_t i = grid_thread(); i < tensors.elements[blockIdx.y]; i += grid_threads())
    all = all && isfinite(x[i]);
  if (!all) *finite = 0;
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const AllFinite&, const Request& request) {
  return function_kernel([&device = request.device](const Call& call) {
    auto* finite = call.out<uint8_t>();
    HR_CHECK(cudaMemsetAsync(finite, 1, 1, call.stream));
    for (size_t first = 0; first < call.inputs.size(); first += Tensors::kMax) {
      Tensors tensors;
      int64_t longest = 0;
      for (size_t i = first; i < std::min(call.inputs.size(), first + Tensors::kMax); ++i) {
        tensors.x[tensors.count] = operand(call, i);
        tensors.elements[tensors.count++] = call.inputs[i].elements();
        longest = std::max(longest, call.inputs[i].elements());
      }
      if (longest == 0) continue;
      const unsigned blocks = std::min(blocks_for(device, longest), blocks_for(device, int64_t{1} << 18));
      launch(find_infinite, dim3(blocks, static_cast<unsigned>(tensors.count)), kThreads, call.stream,
             tensors, finite);
    }
  });
}

std::unique_ptr<Kernel> make_kernel(const Reduce& op, const Request& request) {
  const SplitAxes axes(request.inputs[0].shape, op.axes);
  // Below this, memory takes less time than a launch, and compiling a kernel for the shape would not pay.
  constexpr int64_t kLeastOfGenerated = int64_t{1} << 16;
  if (axes.elements() >= kLeastOfGenerated)
    return make_kernel(ReducedExpression{Expression{1, 0}, op}, request);
  if (op.kind == ReduceKind::kMax) return make_reduction(Max(), axes, request);
  const double share =
      static_cast<double>(request.outputs[0].shape.elements()) / static_cast<double>(axes.elements());
  return make_reduction(Sum{{}, op.kind == ReduceKind::kSum ? 1 : share}, axes, request);
}

std::unique_ptr<Kernel> make_kernel(const ReduceMaxGrad& op, const Request& request) {
  const SplitAxes axes(request.inputs[0].shape, op.axes);
  const ReductionLayout layout = axes.layout(request.device);
  if (axes.elements() == 0) return function_kernel([](const Call&) {});
  return function_kernel(
      [=](const Call& call) {
        with_index_type(axes.elements(), [&](auto type) {
          using I = decltype(type);
          launch(count_ties<I>, layout.grid(), kThreads, call.stream, layout, axes.places<I>(),
                 operand(call, 0), operand(call, 1), call.scratch<int64_t>());
          launch(share_among_ties<I>, layout.grid(), kThreads, call.stream, layout, axes.places<I>(),
                 operand(call, 0), operand(call, 1), operand(call, 2), call.scratch<int64_t>(), result(call));
        });
      },
      layout.splits * layout.results * static_cast<int64_t>(sizeof(int64_t)));
}

}  // namespace headroom::cuda
