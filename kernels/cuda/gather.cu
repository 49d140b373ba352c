// Rows of a table picked by indices, the gradient that adds them back, and the rows of a step.
#include <algorithm>
#include <limits>

#include "kernels/cuda/device_loops.cuh"
#include "kernels/cuda/index_report.cuh"
#include "runtime/base/errors.h"

namespace headroom::cuda {
namespace {

// Rows of `units` units each; a row picked by an index that is none is zero.
template <typename Unit, typename I>
__global__ void gather_rows(Divider<I> units, int64_t total, int64_t rows, const Unit* table,
                            const int32_t* indices, Unit* y, FaultSlot fault) {
  for (int64_t i = grid_thread(); i < total; i += grid_threads()) {
    const I position = units.quotient(static_cast<I>(i));
    const I unit = static_cast<I>(i) - position * units.divisor;
    const int32_t index = indices[position];
    if (in_range(index, rows)) {
      y[i] = table[int64_t{index} * units.divisor + unit];
    } else {
      y[i] = Unit{};
      if (unit == 0) report(fault, position, index);
    }
  }
}

// Where rows have no elements there are still indices to look at.
__global__ void check_indices(int64_t count, int64_t rows, const int32_t* indices, FaultSlot fault) {
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    if (!in_range(indices[i], rows)) report(fault, i, indices[i]);
  }
}

struct GatherShape {
  int64_t rows, count, row_bytes;
};

template <typename Unit>
bool fits(const Call& call, int64_t row_bytes) {
  return row_bytes % static_cast<int64_t>(sizeof(Unit)) == 0 && aligned<1>(call.in<Unit>(0)) &&
         aligned<1>(call.out<Unit>());
}

template <typename Unit>
void launch_gather(const CudaGpu& device, const Call& call, const GatherShape& shape, FaultSlot fault) {
  const int64_t units = shape.row_bytes / static_cast<int64_t>(sizeof(Unit)), total = shape.count * units;
  with_index_type(total, [&](auto type) {
    using I = decltype(type);
    launch(gather_rows<Unit, I>, blocks_for(device, total), kThreads, call.stream, Divider<I>(units), total,
           shape.rows, call.in<Unit>(0), call.in<int32_t>(1), call.out<Unit>(), fault);
  });
}

// Rows of floats that are stored in another type, in groups of N neighbours.
template <int N, typename I>
__global__ void gather_rounded(Divider<I> groups, int64_t total, int64_t rows, Reals table,
                               const int32_t* indices, RealsOut y, FaultSlot fault) {
  for (int64_t i = grid_thread(); i < total; i += grid_threads()) {
    const I position = groups.quotient(static_cast<I>(i));
    const I group = static_cast<I>(i) - position * groups.divisor;
    const int32_t index = indices[position];
    if (in_range(index, rows)) {
      store(y + N * i, load<N>(table + N * (int64_t{index} * groups.divisor + group)));
    } else {
      store(y + N * i, Lanes<float, N>{});
      if (group == 0) report(fault, position, index);
    }
  }
}

template <int N>
void launch_gather_rounded(const CudaGpu& device, const Call& call, const GatherShape& shape,
                           int64_t row_elements, FaultSlot fault) {
  const int64_t groups = row_elements / N, total = shape.count * groups;
  with_index_type(total, [&](auto type) {
    using I = decltype(type);
    launch(gather_rounded<N, I>, blocks_for(device, total), kThreads, call.stream, Divider<I>(groups), total,
           shape.rows, operand(call, 0), call.in<int32_t>(1), result(call), fault);
  });
}

// dtable[row] for each row: a block looks through all indices for those of its rows, a warp adds what is
// found for its own row, in the order of positions. That reads the indices once for every few rows, but needs
// neither atomics nor memory to sort them in.
constexpr int kWarp = 32, kRowsOfBlock = kThreads / kWarp;
constexpr int kColumnsOfLane = 4, kColumnsOfWarp = kColumnsOfLane * kWarp;

__global__ void scatter_rows(int64_t rows, int64_t columns, int64_t count, Reals dy, const int32_t* indices,
                             RealsOut dtable, FaultSlot fault, int64_t tasks, int64_t parts) {
  constexpr int kOfThread = 4, kTurn = kOfThread * kThreads;  // indices
  constexpr int kAtOnce = 4;  // rows of dy: one after the other they would wait for memory each
  __shared__ int32_t turn[kTurn];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const int64_t first_row = task / parts * kRowsOfBlock, row = first_row + thread / kWarp;
    const int64_t column = task % parts * kColumnsOfWarp + lane;
    float sums[kColumnsOfLane] = {};
    for (int64_t first = 0; first < count; first += kTurn) {
      int32_t mine[kOfThread];
      bool found = false;
#pragma unroll
      for (int i = 0; i < kOfThread; ++i) {
        const int64_t position = first + i * kThreads + thread;
        mine[i] = position < count ? indices[position] : -1;
        found = found || (mine[i] >= first_row && mine[i] < first_row + kRowsOfBlock);
        if (task == 0 && position < count && !in_range(mine[i], rows)) report(fault, position, mine[i]);
      }
      if (!__syncthreads_or(found)) continue;
#pragma unroll
      for (int i = 0; i < kOfThread; ++i) turn[i * kThreads + thread] = mine[i];
      __syncthreads();
      for (int begin = 0; begin < kTurn; begin += kWarp) {
        unsigned left = __ballot_sync(~0u, turn[begin + lane] == row);
        while (left != 0) {
          float terms[kAtOnce][kColumnsOfLane];
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i) {
            const Reals from = dy + (first + begin + __ffs(static_cast<int>(left)) - 1) * columns + column;
#pragma unroll
            for (int j = 0; j < kColumnsOfLane; ++j) {
              terms[i][j] = left != 0 && column + j * kWarp < columns ? from[j * kWarp] : 0;
            }
            left &= left - 1;
          }
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
            for (int j = 0; j < kColumnsOfLane; ++j) sums[j] += terms[i][j];
          }
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kColumnsOfLane; ++j) {
      if (row < rows && column + j * kWarp < columns) dtable.set(row * columns + column + j * kWarp, sums[j]);
    }
  }
}

// ---- the rows of a step

struct Copy {
  template <typename T>
  __device__ T operator()(T value) const {
    return value;
  }
};
struct Scaled {
  float factor;
  __device__ float operator()(uint8_t value) const { return factor * static_cast<float>(value); }
};

// Where a step's rows are.
struct Source {
  int64_t rows, batch;
  int32_t batches;
  FaultSlot fault;
};

// L neighbouring elements of `n` per thread and turn, of `lanes` such in a row. A row outside the table is
// reported and read at 0.
template <int L, typename F, typename X, typename Y>
__global__ void take(F f, Source source, Divider<uint32_t> lanes, uint32_t n, const X* table,
                     const int32_t* step, const int32_t* order, Y* out) {
  const int64_t first = source.batch * turn_of_step(*step, source.batches);
  for (auto i = static_cast<uint32_t>(grid_thread()); i < n; i += static_cast<uint32_t>(grid_threads())) {
    const uint32_t row = lanes.quotient(i), lane = i - row * lanes.divisor;
    int64_t from = first + row;
    if (order != nullptr) {
      const int32_t index = order[from];
      from = index;
      if (!in_range(index, source.rows)) {
        if (lane == 0) report(source.fault, row, index);
        from = 0;
      }
    }
    const X* x = table + L * (from * lanes.divisor + lane);
    store(out + L * int64_t{i}, apply<L, Y>(f, load<L>(x)));
  }
}

template <typename X, typename Y, typename F>
std::unique_ptr<Kernel> take_kernel(const TakeBatch& op, const Request& request, F f) {
  const bool ordered = request.inputs.size() == 3;
  const Shape &table = request.inputs[0].shape, &y = request.outputs[0].shape;
  const int64_t n = y.elements(), row = n / op.batch;
  const int64_t batches = request.inputs[ordered ? 2 : 0].shape[0] / op.batch;
  if (std::max(n, batches) > std::numeric_limits<int32_t>::max())
    throw InvalidArgument("take_batch: a batch's elements and the batches must be below 2^31");
  const Source source{table[0], op.batch, static_cast<int32_t>(batches), nullptr};
  const auto site = index_faults(request, op.kTraits.name, "row", table[0]);
  return function_kernel([&device = request.device, source, site, ordered, n, row, f](const Call& call) {
    if (n == 0) return;
    Source from = source;
    from.fault = site->slot();
    const auto queue = [&](auto kernel, int64_t lanes) {
      launch(kernel, blocks_for(device, n / lanes), kThreads, call.stream, f, from,
             Divider<uint32_t>(row / lanes), static_cast<uint32_t>(n / lanes), call.in<X>(0),
             call.in<int32_t>(1), ordered ? call.in<int32_t>(2) : nullptr, call.out<Y>());
    };
    if (row % 4 == 0 && aligned<4>(call.in<X>(0)) && aligned<4>(call.out<Y>())) {
      queue(take<4, F, X, Y>, 4);
    } else {
      queue(take<1, F, X, Y>, 1);
    }
  });
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Gather& op, const Request& request) {
  const TensorSpec& table = request.inputs[0];
  const GatherShape shape{table.shape[0], request.inputs[1].shape.elements(),
                          row_elements(table.shape) * element_bytes(table.dtype)};
  return function_kernel(
      [=, &device = request.device, elements = row_elements(table.shape),
       faults = index_faults(request, op.kTraits.name, "index", shape.rows)](const Call& call) {
        if (shape.count == 0) return;
        if (shape.row_bytes == 0) {
          launch(check_indices, blocks_for(device, shape.count), kThreads, call.stream, shape.count,
                 shape.rows, call.in<int32_t>(1), faults->slot());
        } else if (call.inputs[0].spec.dtype != call.outputs[0].spec.dtype) {
          if (elements % 8 == 0 && aligned<8>(operand(call, 0)) && aligned<8>(result(call))) {
            launch_gather_rounded<8>(device, call, shape, elements, faults->slot());
          } else {
            launch_gather_rounded<1>(device, call, shape, elements, faults->slot());
          }
        } else if (fits<uint4>(call, shape.row_bytes)) {
          launch_gather<uint4>(device, call, shape, faults->slot());
        } else if (fits<uint32_t>(call, shape.row_bytes)) {
          launch_gather<uint32_t>(device, call, shape, faults->slot());
        } else if (fits<uint16_t>(call, shape.row_bytes)) {
          launch_gather<uint16_t>(device, call, shape, faults->slot());
        } else {
          launch_gather<uint8_t>(device, call, shape, faults->slot());
        }
      });
}

std::unique_ptr<Kernel> make_kernel(const GatherGrad& op, const Request& request) {
  const int64_t rows = op.table_shape[0], columns = row_elements(op.table_shape);
  const int64_t count = request.inputs[1].shape.elements();
  const int64_t parts = std::max<int64_t>(1, ceil_div(columns, kColumnsOfWarp));
  // Even without rows there may be indices, which are then out of range.
  const int64_t tasks = std::max<int64_t>(1, ceil_div(rows, kRowsOfBlock)) * parts;
  return function_kernel([=, &device = request.device,
                          faults = index_faults(request, op.kTraits.name, "index", rows)](const Call& call) {
    launch(scatter_rows, blocks_for(device, tasks * kThreads), kThreads, call.stream, rows, columns, count,
           operand(call, 0), call.in<int32_t>(1), result(call), faults->slot(), tasks, parts);
  });
}

std::unique_ptr<Kernel> make_kernel(const TakeBatch& op, const Request& request) {
  if (op.scale) return take_kernel<uint8_t, float>(op, request, Scaled{*op.scale});
  if (element_bytes(request.inputs[0].dtype) == 1) return take_kernel<uint8_t, uint8_t>(op, request, Copy());
  return take_kernel<int32_t, int32_t>(op, request, Copy());  // f32 too: bits are bits
}

}  // namespace headroom::cuda
