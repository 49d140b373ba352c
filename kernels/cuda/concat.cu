// Tensors side by side along an axis: each row of the result is a row of every operand.
#include <algorithm>
#include <vector>

#include "kernels/cuda/device_loops.cuh"

namespace headroom::cuda {
namespace {

// Operands of one launch: a kernel's arguments must stay small.
constexpr int kParts = 8;

// A row of an operand is `width` units, which begin at `offset` in the result's row.
template <typename Unit, typename I>
struct Parts {
  const Unit* from[kParts] = {};
  Divider<I> width[kParts];
  I offset[kParts] = {};
  int64_t units[kParts] = {};
};

template <typename Unit, typename I>
__global__ void place_parts(Parts<Unit, I> parts, I row_width, Unit* y) {
  const unsigned part = blockIdx.y;
  for (int64_t i = grid_thread(); i < parts.units[part]; i += grid_threads()) {
    const auto unit = static_cast<I>(i);
    const I row = parts.width[part].quotient(unit);
    y[row * row_width + parts.offset[part] + unit - row * parts.width[part].divisor] = parts.from[part][i];
  }
}

struct ConcatRows {
  int64_t count = 1;                // rows of each operand
  int64_t width_bytes = 0;          // width of the result
  std::vector<int64_t> part_bytes;  // width of each operand
};

template <typename Unit>
bool fits(const Call& call, const ConcatRows& rows) {
  if (!aligned<1>(call.out<Unit>())) return false;
  for (size_t i = 0; i < rows.part_bytes.size(); ++i) {
    if (rows.part_bytes[i] % static_cast<int64_t>(sizeof(Unit)) != 0 || !aligned<1>(call.in<Unit>(i))) {
      return false;
    }
  }
  return true;
}

template <typename Unit, typename I>
void place(const CudaGpu& device, const Call& call, const ConcatRows& rows) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Unit));
  int64_t offset = 0;
  for (size_t first = 0; first < rows.part_bytes.size(); first += kParts) {
    const size_t count = std::min<size_t>(kParts, rows.part_bytes.size() - first);
    Parts<Unit, I> parts;
    int64_t most = 0;
    for (size_t i = 0; i < count; ++i) {
      const int64_t width = rows.part_bytes[first + i] / kBytes;
      parts.from[i] = call.in<Unit>(first + i);
      parts.width[i] = Divider<I>(std::max<int64_t>(1, width));
      parts.offset[i] = static_cast<I>(offset);
      parts.units[i] = rows.count * width;
      most = std::max(most, parts.units[i]);
      offset += width;
    }
    if (most == 0) continue;
    launch(place_parts<Unit, I>, dim3(blocks_for(device, most), static_cast<unsigned>(count)), kThreads,
           call.stream, parts, static_cast<I>(rows.width_bytes / kBytes), call.out<Unit>());
  }
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Concat& op, const Request& request) {
  ConcatRows rows;
  const Shape& shape = request.outputs[0].shape;
  for (int axis = 0; axis < op.axis; ++axis) rows.count *= shape[axis];
  if (shape.elements() == 0) return function_kernel([](const Call&) {});
  for (const TensorSpec& input : request.inputs) rows.part_bytes.push_back(input.bytes() / rows.count);
  rows.width_bytes = request.outputs[0].bytes() / rows.count;
  return function_kernel([rows, &device = request.device](const Call& call) {
    with_index_type(rows.count * rows.width_bytes, [&](auto type) {
      using I = decltype(type);
      if (fits<uint4>(call, rows)) {
        place<uint4, I>(device, call, rows);
      } else if (fits<uint32_t>(call, rows)) {
        place<uint32_t, I>(device, call, rows);
      } else if (fits<uint16_t>(call, rows)) {
        place<uint16_t, I>(device, call, rows);
      } else {
        place<uint8_t, I>(device, call, rows);
      }
    });
  });
}

}  // namespace headroom::cuda
