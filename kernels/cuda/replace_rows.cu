// Rows of tables replaced by others: as a result, or in place, one launch for all tables of an update.
#include <algorithm>

#include "kernels/cuda/device_loops.cuh"
#include "kernels/cuda/early_start.cuh"
#include "ops/movement.h"

namespace headroom::cuda {
namespace {

// Some tables (..,R,..), and new rows (..,N,..) for each.
struct TableRows {
  static constexpr int kMax = 64;
  int count = 0;
  char* table[kMax];
  const char* rows[kMax];
  int32_t of_axis[kMax];   // R
  int64_t bytes[kMax];     // of a row
  int64_t elements[kMax];  // bytes of all new rows
};

template <typename Unit>
__device__ void copy_rows(const TableRows& tables, int i, int indices, const int32_t* places) {
  const int64_t units = tables.bytes[i] / static_cast<int64_t>(sizeof(Unit));
  const int64_t all = tables.elements[i] / static_cast<int64_t>(sizeof(Unit));
  for (int64_t at = grid_thread(); at < all; at += grid_threads()) {
    const int64_t row = at / units, outer = row / indices;
    const int64_t place =
        outer * tables.of_axis[i] + turn_of_step(places[row - outer * indices], int64_t{tables.of_axis[i]});
    reinterpret_cast<Unit*>(tables.table[i])[place * units + at - row * units] =
        reinterpret_cast<const Unit*>(tables.rows[i])[at];
  }
}

// One column of blocks for each table.
__global__ void write_rows(const __grid_constant__ TableRows tables, int indices, const int32_t* places) {
  wait_for_earlier_work();
  const int i = static_cast<int>(blockIdx.y);
  const uint64_t addresses =
      reinterpret_cast<uint64_t>(tables.table[i]) | reinterpret_cast<uint64_t>(tables.rows[i]);
  const uint64_t multiple = addresses | static_cast<uint64_t>(tables.bytes[i]);
  if (multiple % 16 == 0) return copy_rows<uint4>(tables, i, indices, places);
  if (multiple % 4 == 0) return copy_rows<uint32_t>(tables, i, indices, places);
  copy_rows<char>(tables, i, indices, places);
}

// Queues the rows of `views`, pairs of table and rows, at the places that the indices name.
void replace_rows(std::span<const TensorView> views, int axis, const TensorView& indices, char* to,
                  cudaStream_t stream) {
  const auto count = static_cast<int>(indices.elements());
  TableRows tables;
  int64_t longest = 0;
  const auto flush = [&] {
    // Rows are short: losses, keys of a few words.
    const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(ceil_div(longest, 16 * kThreads), 1, 32));
    if (longest > 0) {
      launch(write_rows, dim3(blocks, static_cast<unsigned>(tables.count)), kThreads, stream, tables, count,
             indices.as<int32_t>());
    }
    tables.count = 0;
    longest = 0;
  };
  for (size_t i = 0; i + 1 < views.size(); i += 2) {
    const AxisRows rows(views[i].spec.shape, axis);
    const int at = tables.count;
    tables.table[at] = to != nullptr ? to : views[i].as<char>();
    tables.rows[at] = views[i + 1].as<char>();
    tables.of_axis[at] = static_cast<int32_t>(rows.rows);
    tables.bytes[at] = rows.inner * element_bytes(views[i].spec.dtype);
    tables.elements[at] = views[i + 1].spec.bytes();
    longest = std::max(longest, tables.elements[at]);
    if (++tables.count == TableRows::kMax) flush();
  }
  flush();
}
}  // namespace

std::unique_ptr<Kernel> make_kernel(const RowUpdate& op, const Request& request) {
  return function_kernel(
      [axis = op.axis](const Call& call) {
        replace_rows(call.inputs.subspan(1), axis, call.inputs[0], nullptr, call.stream);
      },
      0, starts_early(request.device, {}));
}

std::unique_ptr<Kernel> make_kernel(const ReplaceRows& op, const Request&) {
  return function_kernel([axis = op.axis](const Call& call) {
    const TensorView &x = call.inputs[0], &y = call.outputs[0];
    if (y.data != x.data && x.spec.bytes() > 0) {
      HR_CHECK(cudaMemcpyAsync(y.data, x.data, static_cast<size_t>(x.spec.bytes()), cudaMemcpyDeviceToDevice,
                               call.stream));
    }
    const TensorView pair[] = {x, call.inputs[2]};
    replace_rows(pair, axis, call.inputs[1], y.as<char>(), call.stream);
  });
}

}  // namespace headroom::cuda
