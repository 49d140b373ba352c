// The rows of a step out of a table that stays on the device, bytes turned to floats on the way.
#include <algorithm>
#include <limits>

#include "kernels/cuda/device_loops.cuh"
#include "kernels/cuda/index_report.cuh"
#include "runtime/base/errors.h"

namespace headroom::cuda {
namespace {

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
    store(out + L * int64_t{i}, apply<L, F, Y, X>(f, load<L>(x)));
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
  auto site =
      std::make_shared<IndexFaults::Site>(request.device.index_faults().add("take_batch", "row", table[0]));
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

std::unique_ptr<Kernel> make_kernel(const TakeBatch& op, const Request& request) {
  if (op.scale) return take_kernel<uint8_t, float>(op, request, Scaled{*op.scale});
  if (element_bytes(request.inputs[0].dtype) == 1) return take_kernel<uint8_t, uint8_t>(op, request, Copy());
  return take_kernel<int32_t, int32_t>(op, request, Copy());  // f32 too: bits are bits
}

}  // namespace headroom::cuda
