// Rows of a table picked by indices, the gradient that adds them back, and the rows of a step.
#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>
#include <limits>
#include <type_traits>

#include "base/errors.h"
#include "kernels/cuda/device_loops.cuh"
#include "kernels/cuda/index_report.cuh"

namespace headroom::cuda {
namespace {

// Copies rows of `units` units each; an invalid index gives a row of zeros.
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

// Checks the indices even if rows have no elements.
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

// Rows of floats that are stored in another type, in groups of N neighbors.
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

// dtable[row] for each row: a block searches all indices for those of its rows, and a warp sums the findings
// for its own row, in the order of positions. That reads the indices once for every few rows, but needs
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

// ---- the same by sorting: each row then finds its terms side by side, still in the order of positions

// Replaces an invalid index by `rows`, and reports it.
__global__ void number_positions(int64_t count, int64_t rows, const int32_t* indices, int32_t* keys,
                                 int32_t* positions, FaultSlot fault) {
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    const int32_t index = indices[i];
    const bool is_row = in_range(index, rows);
    if (!is_row) report(fault, i, index);
    keys[i] = is_row ? index : static_cast<int32_t>(rows);
    positions[i] = static_cast<int32_t>(i);
  }
}

// begin[row]: how many sorted keys are below row, for rows [0, rows].
__global__ void find_begins(int64_t count, int64_t rows, const int32_t* sorted, int32_t* begin) {
  for (int64_t i = grid_thread(); i <= count; i += grid_threads()) {
    const int64_t here = i < count ? sorted[i] : rows, before = i > 0 ? sorted[i - 1] : -1;
    for (int64_t row = before + 1; row <= here; ++row) begin[row] = static_cast<int32_t>(i);
  }
}

// A row may have all of the terms, as padding does, so that a thread adds a chunk of terms and no row. A row
// within a chunk is finished there. The others leave a part in each of their chunks: the row that a chunk
// begins with the first of its two, the row that it ends with the second.
constexpr int kChunk = 64;

template <int N>
__global__ void add_chunks(int64_t count, int64_t rows, Divider<int64_t> groups, const int32_t* sorted,
                           const int32_t* positions, Reals dy, RealsOut dtable, float* parts) {
  constexpr int kAtOnce = 8;
  const int64_t total = ceil_div(count, kChunk) * groups.divisor;
  for (int64_t i = grid_thread(); i < total; i += grid_threads()) {
    const int64_t chunk = groups.quotient(i), group = i - chunk * groups.divisor;
    const int64_t first = chunk * kChunk, end = min(first + kChunk, count);
    Lanes<float, N> sum{};
    int32_t row = sorted[first];
    bool is_first = true;
    const auto finish_row = [&](bool is_last) {
      if (is_first || is_last) {
        store(parts + ((2 * chunk + (is_first ? 0 : 1)) * groups.divisor + group) * N, sum);
      } else if (row < rows) {
        store(dtable + N * (row * groups.divisor + group), sum);
      }
    };
    for (int64_t at = first; at < end; at += kAtOnce) {
      Stored<N> terms[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int64_t position = positions[min(at + k, end - 1)];
        terms[k] = dy.template fetch<N>(N * (position * groups.divisor + group));
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (at + k >= end) break;
        const int32_t here = sorted[at + k];
        if (here != row) {
          finish_row(false);
          sum = {};
          row = here;
          is_first = false;
        }
        const Lanes<float, N> term = widened(terms[k]);
#pragma unroll
        for (int lane = 0; lane < N; ++lane) sum.values[lane] += term.values[lane];
      }
    }
    finish_row(true);
  }
}

// The rows that add_chunks() did not finish, a thread for N neighboring columns of a row.
template <int N>
__global__ void add_parts(int64_t count, int64_t rows, Divider<int64_t> groups, const int32_t* begins,
                          const float* parts, RealsOut dtable) {
  const int64_t total = rows * groups.divisor;
  for (int64_t i = grid_thread(); i < total; i += grid_threads()) {
    const int64_t row = groups.quotient(i), group = i - row * groups.divisor;
    const int64_t begin = begins[row], end = begins[row + 1];
    const int64_t first = begin / kChunk, last = (end - 1) / kChunk;
    Lanes<float, N> sum{};
    if (begin < end) {
      const bool is_inside = first == last && begin % kChunk != 0 && end < min((first + 1) * kChunk, count);
      if (is_inside) continue;
#pragma unroll 4
      for (int64_t chunk = first; chunk <= last; ++chunk) {
        const int64_t part = 2 * chunk + (chunk == first && begin % kChunk != 0 ? 1 : 0);
        const Lanes<float, N> term = load<N>(parts + (part * groups.divisor + group) * N);
#pragma unroll
        for (int lane = 0; lane < N; ++lane) sum.values[lane] += term.values[lane];
      }
    }
    store(dtable + N * i, sum);
  }
}

// The workspace of a gradient by sorting: arrays of i32, the parts, then the memory of the sort.
struct SortLayout {
  int64_t count, rows, columns;
  size_t sort_bytes = 0;

  SortLayout(int64_t index_count, int64_t table_rows, int64_t table_columns)
      : count(index_count), rows(table_rows), columns(table_columns) {
    HR_CHECK(sort(nullptr, nullptr));
  }
  static int64_t aligned(int64_t n) { return (n * 4 + 255) / 256 * 256; }
  // keys, numbers, sorted keys, sorted positions, begins
  int64_t at(int array) const { return array * aligned(count); }
  int64_t parts_at() const { return at(4) + aligned(rows + 1); }
  int64_t sort_at() const { return parts_at() + aligned(2 * ceil_div(count, kChunk) * columns); }
  int64_t bytes() const { return sort_at() + static_cast<int64_t>(sort_bytes); }

  // Radix sort is stable, so that equal indices stay in the order of their positions.
  cudaError_t sort(std::byte* workspace, cudaStream_t stream) {
    const auto array = [&](int i) { return reinterpret_cast<int32_t*>(workspace + at(i)); };
    void* const room = workspace == nullptr ? nullptr : workspace + sort_at();
    return cub::DeviceRadixSort::SortPairs(room, sort_bytes, array(0), array(2), array(1), array(3), count, 0,
                                           std::bit_width(static_cast<uint64_t>(rows)), stream);
  }
};

// Fewer indices are found sooner than sorted.
bool is_worth_sorting(int64_t count) {
  constexpr int64_t kLeastIndices = 2048;
  return count >= kLeastIndices && count <= std::numeric_limits<int32_t>::max();
}

std::unique_ptr<Kernel> gather_grad_by_sorting(const GatherGrad& op, const Request& request) {
  SortLayout layout(request.inputs[1].shape.elements(), op.table_shape[0], row_elements(op.table_shape));
  return function_kernel(
      [=, &device = request.device,
       faults = index_faults(request, op.kTraits.name, "index", layout.rows)](const Call& call) {
        SortLayout sort = layout;
        auto* const workspace = call.scratch<std::byte>();
        const auto array = [&](int i) { return reinterpret_cast<int32_t*>(workspace + sort.at(i)); };
        launch(number_positions, blocks_for(device, sort.count), kThreads, call.stream, sort.count, sort.rows,
               call.in<int32_t>(1), array(0), array(1), faults->slot());
        HR_CHECK(sort.sort(workspace, call.stream));
        launch(find_begins, blocks_for(device, sort.count + 1), kThreads, call.stream, sort.count, sort.rows,
               array(2), array(4));
        const Reals dy = operand(call, 0);
        const RealsOut dtable = result(call);
        const auto add = [&](auto lanes) {
          const int64_t groups = sort.columns / lanes, chunks = ceil_div(sort.count, kChunk);
          auto* const parts = reinterpret_cast<float*>(workspace + sort.parts_at());
          launch(add_chunks<lanes>, blocks_for(device, chunks * groups), kThreads, call.stream, sort.count,
                 sort.rows, Divider<int64_t>(groups), array(2), array(3), dy, dtable, parts);
          launch(add_parts<lanes>, blocks_for(device, sort.rows * groups), kThreads, call.stream, sort.count,
                 sort.rows, Divider<int64_t>(groups), array(4), parts, dtable);
        };
        if (sort.columns % 8 == 0 && aligned<8>(dy) && aligned<8>(dtable)) {
          add(std::integral_constant<int, 8>());
        } else {
          add(std::integral_constant<int, 1>());
        }
      },
      layout.bytes());
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

// The source of a step's rows.
struct Source {
  int64_t rows, batch;
  int32_t batches;
  FaultSlot fault;
};

// L neighboring elements of `n` per thread and turn, of `lanes` such in a row. A row outside the table is
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
  if (columns > 0 && rows > 0 && is_worth_sorting(count)) return gather_grad_by_sorting(op, request);
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
