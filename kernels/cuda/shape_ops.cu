// Ops that only move elements. Most are one strided copy; a transposition goes through shared memory, so that
// it reads and writes whole lines.
#include <algorithm>
#include <optional>
#include <type_traits>
#include <vector>

#include "kernels/cuda/device_loops.cuh"

namespace headroom::cuda {
namespace {

template <int N, typename T, typename I>
__global__ void copy_strided(StridedIndex<2, I> index, int64_t groups, const T* from, T* to) {
  constexpr int kAtOnce = 4;  // loads on their way: one after the other they would wait for memory each
  for (int64_t first = grid_thread(); first < groups; first += kAtOnce * grid_threads()) {
    Lanes<T, N> lanes[kAtOnce];
    I places[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      // Beyond the end the last group is loaded again, and not stored.
      const Offsets<2, I> offsets = index(static_cast<I>(min(first + k * grid_threads(), groups - 1)));
      lanes[k] = load<N>(from + offsets.at[0]);
      places[k] = offsets.at[1];
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (first + k * grid_threads() < groups) store(to + places[k], lanes[k]);
    }
  }
}

// Dense rows whose lengths or addresses let no thread take neighbors at once: a block takes a part of a row,
// so that its place is found once and not for each element.
constexpr int kRowPart = 4 * kThreads;

template <typename T, typename I>
__global__ void copy_rows(StridedIndex<2, I> rows, Divider<I> parts, int64_t count, I extent, const T* from,
                          T* to) {
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const auto number = static_cast<I>(i);
    const I row = parts.quotient(number);
    const I first = (number - row * parts.divisor) * kRowPart + static_cast<I>(threadIdx.x);
    const Offsets<2, I> offsets = rows(row);
    T held[kRowPart / kThreads];
#pragma unroll
    for (int k = 0; k < kRowPart / kThreads; ++k) {
      const I at = first + k * kThreads;
      held[k] = at < extent ? from[offsets.at[0] + at] : T{0};
    }
#pragma unroll
    for (int k = 0; k < kRowPart / kThreads; ++k) {
      const I at = first + k * kThreads;
      if (at < extent) to[offsets.at[1] + at] = held[k];
    }
  }
}

// The axes of `nest` around the innermost and `fast`.
LoopNest<2> axes_around(const LoopNest<2>& nest, int fast) {
  std::vector<int64_t> extents;
  std::array<Strides, 2> strides{};
  for (int axis = nest.axis_count() - 1; axis > 0; --axis) {
    if (axis == fast) continue;
    for (size_t n = 0; n < 2; ++n) strides[n][extents.size()] = nest.strides(axis)[n];
    extents.push_back(nest.extent(axis));
  }
  return LoopNest<2>(Shape(std::span<const int64_t>(extents)), strides);
}

// Elements are moved as unsigned numbers of their size.
template <typename F>
void with_element_type(DType dtype, F f) {
  switch (element_bytes(dtype)) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    default:
      return f(uint32_t{});
  }
}

// Copies operand 0 to operand 1 of a nest, as many elements at once as rows and addresses allow.
class StridedCopy {
 public:
  StridedCopy(const CudaGpu& device, const Shape& extents, const Strides& from, const Strides& to,
              DType dtype, int64_t from_offset = 0, int64_t to_offset = 0)
      : device_(device),
        nest_(extents, {from, to}),
        count_(extents.elements()),
        largest_(count_),
        dtype_(dtype),
        from_offset_(from_offset),
        to_offset_(to_offset) {
    for (const Strides& strides : {from, to}) {
      for (int64_t stride : strides) {
        if (stride < 0) largest_ = INT64_MAX;  // offsets need a sign
      }
    }
  }

  void operator()(const Call& call) const {
    if (count_ == 0) return;
    with_element_type(dtype_, [&](auto element) {
      using T = decltype(element);
      const T* from = call.in<T>(0) + from_offset_;
      T* to = call.out<T>() + to_offset_;
      constexpr int kWide = 16 / sizeof(T);
      if (!copy<kWide>(call.stream, from, to) && !(sizeof(T) < 4 && copy<4>(call.stream, from, to))) {
        copy<1>(call.stream, from, to);
      }
    });
  }

 private:
  template <int N, typename T>
  bool copy(cudaStream_t stream, const T* from, T* to) const {
    const bool dense = nest_.row_strides()[0] == 1 && nest_.row_strides()[1] == 1;
    if (N > 1 && !(dense && rows_have_lanes(nest_, N) && aligned<N>(from) && aligned<N>(to))) return false;
    const int64_t extent = nest_.row_extent();
    with_index_type(largest_, [&](auto type) {
      using I = decltype(type);
      if (N == 1 && dense && extent >= kThreads) {
        const int64_t parts = ceil_div(extent, kRowPart), count = count_ / extent * parts;
        return launch(copy_rows<T, I>, blocks_for(device_, count * kThreads), kThreads, stream,
                      StridedIndex<2, I>(axes_around(nest_, 0)), Divider<I>(parts), count,
                      static_cast<I>(extent), from, to);
      }
      launch(copy_strided<N, T, I>, blocks_for(device_, count_ / N), kThreads, stream,
             StridedIndex<2, I>(nest_, N), count_ / N, from, to);
    });
    return true;
  }

  const CudaGpu& device_;
  LoopNest<2> nest_;
  int64_t count_, largest_;
  DType dtype_;
  int64_t from_offset_, to_offset_;
};

// The strides of every steps[axis]-th element.
Strides stepped(Strides strides, std::span<const int64_t> steps) {
  for (size_t axis = 0; axis < steps.size(); ++axis) strides[axis] *= steps[axis];
  return strides;
}

// ---- transposition

constexpr int kTile = 32;

// Two axes that swap places, `fast_to` dense in the result and `fast_from` dense in the operand, in tiles;
// `outer` numbers the remaining axes.
template <typename I>
struct Tiling {
  StridedIndex<2, I> outer;
  Divider<I> tiles_to, tiles_from;
  I extent_to, extent_from;
  I from_stride, to_stride;  // stride of the operand along fast_to, of the result along fast_from
};

template <typename T, typename I>
__global__ void transpose_tiles(Tiling<I> tiling, int64_t tiles, const T* from, T* to) {
  __shared__ T tile[kTile][kTile + 1];  // one more, so that a column's elements are in different banks
  const int x = static_cast<int>(threadIdx.x) % kTile, y = static_cast<int>(threadIdx.x) / kTile;
  for (int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    const auto number = static_cast<I>(i);
    const I rest = tiling.tiles_to.quotient(number), outer = tiling.tiles_from.quotient(rest);
    const I first_to = (number - rest * tiling.tiles_to.divisor) * kTile;
    const I first_from = (rest - outer * tiling.tiles_from.divisor) * kTile;
    const Offsets<2, I> offsets = tiling.outer(outer);
    for (int row = y; row < kTile; row += kThreads / kTile) {
      if (first_to + row >= tiling.extent_to || first_from + x >= tiling.extent_from) continue;
      tile[row][x] = from[offsets.at[0] + (first_to + row) * tiling.from_stride + first_from + x];
    }
    __syncthreads();
    for (int row = y; row < kTile; row += kThreads / kTile) {
      if (first_from + row >= tiling.extent_from || first_to + x >= tiling.extent_to) continue;
      to[offsets.at[1] + (first_from + row) * tiling.to_stride + first_to + x] = tile[x][row];
    }
    __syncthreads();
  }
}

// Returns the axis along which the operand is dense, if that is not the innermost; -1 if there is none.
int fast_axis_of_operand(const LoopNest<2>& nest) {
  for (int axis = 1; axis < nest.axis_count(); ++axis) {
    if (nest.strides(axis)[0] == 1) return axis;
  }
  return -1;
}

std::unique_ptr<Kernel> make_tiled(const LoopNest<2>& nest, int fast_from, int64_t count,
                                   const Request& request) {
  const LoopNest<2> around = axes_around(nest, fast_from);
  const int64_t extent_to = nest.extent(0), extent_from = nest.extent(fast_from);
  const int64_t tiles_to = ceil_div(extent_to, kTile), tiles_from = ceil_div(extent_from, kTile);
  const int64_t tiles = tiles_to * tiles_from * (count / (extent_to * extent_from));
  return function_kernel([=, &device = request.device, dtype = request.inputs[0].dtype](const Call& call) {
    with_element_type(dtype, [&](auto element) {
      using T = decltype(element);
      with_index_type(count, [&](auto type) {
        using I = decltype(type);
        const Tiling<I> tiling{StridedIndex<2, I>(around),
                               Divider<I>(tiles_to),
                               Divider<I>(tiles_from),
                               static_cast<I>(extent_to),
                               static_cast<I>(extent_from),
                               static_cast<I>(nest.strides(0)[0]),
                               static_cast<I>(nest.strides(fast_from)[1])};
        launch(transpose_tiles<T, I>, blocks_for(device, tiles * kThreads), kThreads, call.stream, tiling,
               tiles, call.in<T>(0), call.out<T>());
      });
    });
  });
}

// ---- gradient of a slice

// Position of the slice in a tensor, axis by axis, innermost first.
template <typename I>
struct Window {
  int axes = 0;
  Divider<I> extents[Shape::kMaxRank];
  I begin[Shape::kMaxRank] = {}, size[Shape::kMaxRank] = {}, stride[Shape::kMaxRank] = {};
};

template <typename I>
Window<I> window_of(std::span<const int64_t> begin, const Shape& slice, const Shape& whole) {
  Window<I> window;
  const Strides strides = strides_of(slice);
  for (int axis = whole.rank() - 1; axis >= 0; --axis) {
    const int i = window.axes++;
    const auto place = static_cast<size_t>(axis);
    window.extents[i] = Divider<I>(whole[axis]);
    window.begin[i] = static_cast<I>(begin[place]);
    window.size[i] = static_cast<I>(slice[axis]);
    window.stride[i] = static_cast<I>(strides[place]);
  }
  return window;
}

template <typename T, typename I>
__global__ void embed(Window<I> window, int64_t count, const T* dy, T* dx) {
  using Unsigned = std::make_unsigned_t<I>;
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    I rest = static_cast<I>(i), offset = 0;
    bool inside = true;
#pragma unroll
    for (int axis = 0; axis < Shape::kMaxRank; ++axis) {
      if (axis >= window.axes) break;
      const I outer = window.extents[axis].quotient(rest);
      // Before the slice begins this is negative, so a large number without a sign.
      const I position = rest - outer * window.extents[axis].divisor - window.begin[axis];
      inside = inside && static_cast<Unsigned>(position) < static_cast<Unsigned>(window.size[axis]);
      offset += position * window.stride[axis];
      rest = outer;
    }
    dx[i] = inside ? dy[offset] : T{0};
  }
}

// Returns the bytes of zeros before a slice that is contiguous in its tensor; nullopt if it is not.
std::optional<int64_t> bytes_before(const SliceGrad& op, const TensorSpec& slice) {
  const Shape &part = slice.shape, &whole = op.input_shape;
  int axis = 0;
  while (axis < whole.rank() && part[axis] == 1 && whole[axis] == 1) ++axis;
  for (int i = axis + 1; i < whole.rank(); ++i) {
    if (part[i] != whole[i]) return {};
  }
  if (axis >= whole.rank()) return 0;
  return op.begin[static_cast<size_t>(axis)] * strides_of(whole)[static_cast<size_t>(axis)] *
         element_bytes(slice.dtype);
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Reshape&, const Request& request) {
  return function_kernel([bytes = static_cast<size_t>(request.inputs[0].bytes())](const Call& call) {
    const void* x = call.inputs[0].data;
    void* y = call.outputs[0].data;
    if (bytes > 0 && x != y) HR_CHECK(cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice, call.stream));
  });
}

std::unique_ptr<Kernel> make_kernel(const CopyToDevice&, const Request& request) {
  return make_kernel(Reshape{request.outputs[0].shape}, request);
}

std::unique_ptr<Kernel> make_kernel(const Transpose& op, const Request& request) {
  const Strides permuted = transposed_strides(request.inputs[0].shape, op.axes);
  const Shape& shape = request.outputs[0].shape;
  const LoopNest<2> nest(shape, {permuted, strides_of(shape)});
  const int fast_from = fast_axis_of_operand(nest);
  // Thinner axes would leave most of a tile empty; the caches serve them well enough.
  constexpr int64_t kThinnest = 8;
  if (shape.elements() > 0 && fast_from > 0 && nest.extent(0) >= kThinnest &&
      nest.extent(fast_from) >= kThinnest) {
    return make_tiled(nest, fast_from, shape.elements(), request);
  }
  return function_kernel(
      StridedCopy(request.device, shape, permuted, strides_of(shape), request.inputs[0].dtype));
}

std::unique_ptr<Kernel> make_kernel(const Slice& op, const Request& request) {
  const Strides strides = strides_of(request.inputs[0].shape);
  const Shape& shape = request.outputs[0].shape;
  return function_kernel(StridedCopy(request.device, shape, stepped(strides, op.steps), strides_of(shape),
                                     request.inputs[0].dtype, offset_of(op.begin, strides)));
}

std::unique_ptr<Kernel> make_kernel(const SliceGrad& op, const Request& request) {
  const TensorSpec dy = request.inputs[0];
  const int64_t count = op.input_shape.elements();
  if (std::any_of(op.steps.begin(), op.steps.end(), [](int64_t step) { return step != 1; })) {
    const Strides strides = strides_of(op.input_shape);
    const StridedCopy copy(request.device, dy.shape, strides_of(dy.shape), stepped(strides, op.steps),
                           dy.dtype, 0, offset_of(op.begin, strides));
    return function_kernel([copy, bytes = static_cast<size_t>(request.outputs[0].bytes())](const Call& call) {
      if (bytes > 0) HR_CHECK(cudaMemsetAsync(call.outputs[0].data, 0, bytes, call.stream));
      copy(call);
    });
  }
  if (const std::optional<int64_t> before = bytes_before(op, dy)) {
    return function_kernel(
        [before = *before, bytes = dy.bytes(), all = request.outputs[0].bytes()](const Call& call) {
          auto* const to = static_cast<std::byte*>(call.outputs[0].data);
          const auto clear = [&](int64_t from, int64_t count) {
            if (count > 0) HR_CHECK(cudaMemsetAsync(to + from, 0, static_cast<size_t>(count), call.stream));
          };
          clear(0, before);
          if (bytes > 0) {
            HR_CHECK(cudaMemcpyAsync(to + before, call.inputs[0].data, static_cast<size_t>(bytes),
                                     cudaMemcpyDeviceToDevice, call.stream));
          }
          clear(before + bytes, all - before - bytes);
        });
  }
  return function_kernel([=, &device = request.device](const Call& call) {
    if (count == 0) return;
    with_element_type(dy.dtype, [&](auto element) {
      using T = decltype(element);
      with_index_type(count, [&](auto type) {
        using I = decltype(type);
        launch(embed<T, I>, blocks_for(device, count), kThreads, call.stream,
               window_of<I>(op.begin, dy.shape, op.input_shape), count, call.in<T>(0), call.out<T>());
      });
    });
  });
}

std::unique_ptr<Kernel> make_kernel(const BroadcastTo&, const Request& request) {
  const TensorSpec& x = request.inputs[0];
  const Shape& shape = request.outputs[0].shape;
  return function_kernel(
      StridedCopy(request.device, shape, broadcast_strides(x.shape, shape), strides_of(shape), x.dtype));
}

}  // namespace headroom::cuda
