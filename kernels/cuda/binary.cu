// add, sub, mul, div with NumPy's broadcasting.
#include "kernels/cuda/device_loops.cuh"

namespace headroom::cuda {
namespace {

// N neighbours along a row, where dense operands are dense or one number.
template <int N>
__device__ Lanes<float, N> load_along_row(const float* from, bool fixed) {
  if (!fixed) return load<N>(from);
  Lanes<float, N> lanes;
#pragma unroll
  for (int lane = 0; lane < N; ++lane) lanes.values[lane] = *from;
  return lanes;
}

// y may be a or b where that is not broadcast: an element is read before it is written, by the same thread.
template <int N, typename F, typename I>
__global__ void combine(F f, StridedIndex<3, I> index, int64_t groups, bool a_fixed, bool b_fixed,
                        const float* a, const float* b, float* y) {
  for (int64_t i = grid_thread(); i < groups; i += grid_threads()) {
    const Offsets<3, I> offsets = index(static_cast<I>(i));
    store(y + offsets.at[2], apply<N, F, float>(f, load_along_row<N>(a + offsets.at[0], a_fixed),
                                                load_along_row<N>(b + offsets.at[1], b_fixed)));
  }
}

template <int N, typename F, typename I>
void launch_combine(const CudaGpu& device, const Call& call, const F& f, const LoopNest<3>& nest,
                    int64_t groups) {
  launch(combine<N, F, I>, blocks_for(device, groups), kThreads, call.stream, f, StridedIndex<3, I>(nest, N),
         groups, nest.row_strides()[0] == 0, nest.row_strides()[1] == 0, call.in(0), call.in(1), call.out());
}

template <typename F>
std::unique_ptr<Kernel> make_binary(F f, const Request& request) {
  const Shape &a = request.inputs[0].shape, &b = request.inputs[1].shape, &y = request.outputs[0].shape;
  const int64_t n = y.elements();
  if (n == 0) return function_kernel([](const Call&) {});
  if (a.elements() == n && b.elements() == n) {
    return function_kernel([&device = request.device, f, n](const Call& call) {
      map(device, call.stream, f, n, call.out(), call.in(0), call.in(1));
    });
  }
  const LoopNest<3> nest(y, {broadcast_strides(a, y), broadcast_strides(b, y), strides_of(y)});
  const bool in_fours = rows_have_lanes(nest, 4);
  return function_kernel([=, &device = request.device](const Call& call) {
    const bool a_fits = nest.row_strides()[0] == 0 || aligned<4>(call.in(0));
    const bool b_fits = nest.row_strides()[1] == 0 || aligned<4>(call.in(1));
    const bool fours = in_fours && a_fits && b_fits && aligned<4>(call.out());
    with_index_type(n, [&](auto type) {
      using I = decltype(type);
      if (fours) {
        launch_combine<4, F, I>(device, call, f, nest, n / 4);
      } else {
        launch_combine<1, F, I>(device, call, f, nest, n);
      }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Binary& op, const Request& request) {
  switch (op.kind) {
    case BinaryKind::kAdd:
      return make_binary([] __device__(float a, float b) { return a + b; }, request);
    case BinaryKind::kSub:
      return make_binary([] __device__(float a, float b) { return a - b; }, request);
    case BinaryKind::kMul:
      return make_binary([] __device__(float a, float b) { return a * b; }, request);
    case BinaryKind::kDiv:
      return make_binary([] __device__(float a, float b) { return a / b; }, request);
  }
  return nullptr;
}

}  // namespace headroom::cuda
