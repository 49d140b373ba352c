// Rows of a table picked by indices, the gradient that adds them back, and the rows of a step.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/index_check.h"
#include "kernels/loop_nest.h"

namespace headroom::cpu {
std::unique_ptr<Kernel> make_kernel(const Gather&, const Request& request) {
  const int64_t rows = request.inputs[0].shape[0], count = request.inputs[1].shape.elements();
  const auto row_bytes =
      static_cast<size_t>(row_elements(request.inputs[0].shape) * element_bytes(request.inputs[0].dtype));
  return function_kernel([=](const Call& call) {
    const int32_t* indices = call.in<int32_t>(1);
    check_indices(Gather::kTraits.name, "index", indices, count, rows);
    if (row_bytes == 0) return;
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(call.out<std::byte>() + static_cast<size_t>(i) * row_bytes,
                  call.in<std::byte>(0) + static_cast<size_t>(indices[i]) * row_bytes, row_bytes);
    }
  });
}

void replace_rows(const TensorSpec& table, int axis, const TensorView& indices, const std::byte* from,
                  std::byte* to) {
  const AxisRows all(table.shape, axis);
  const int64_t bytes = all.inner * element_bytes(table.dtype), count = indices.elements();
  if (bytes == 0) return;
  for (int64_t outer = 0; outer < all.outer; ++outer) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = outer * all.rows + turn_of_step(indices.as<int32_t>()[i], all.rows);
      std::memcpy(to + row * bytes, from + (outer * count + i) * bytes, static_cast<size_t>(bytes));
    }
  }
}

std::unique_ptr<Kernel> make_kernel(const ReplaceRows& op, const Request&) {
  return function_kernel([axis = op.axis](const Call& call) {
    auto* const y = call.out<std::byte>();
    const TensorView& x = call.inputs[0];
    if (y != x.data && x.spec.bytes() > 0) std::memcpy(y, x.data, static_cast<size_t>(x.spec.bytes()));
    replace_rows(x.spec, axis, call.inputs[1], call.in<std::byte>(2), y);
  });
}

std::unique_ptr<Kernel> make_kernel(const GatherGrad& op, const Request& request) {
  const int64_t rows = op.table_shape[0], n = row_elements(op.table_shape);
  const int64_t count = request.inputs[1].shape.elements();
  return function_kernel([=](const Call& call) {
    const int32_t* indices = call.in<int32_t>(1);
    check_indices(GatherGrad::kTraits.name, "index", indices, count, rows);
    std::fill_n(call.out(), rows * n, 0.0f);
    for (int64_t i = 0; i < count; ++i) {
      const float* dy = call.in(0) + i * n;
      float* sum = call.out() + indices[i] * n;
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) sum[j] += dy[j];
    }
  });
}

std::unique_ptr<Kernel> make_kernel(const TakeBatch& op, const Request& request) {
  const bool ordered = request.inputs.size() == 3;
  const int64_t rows = request.inputs[0].shape[0],
                batches = request.inputs[ordered ? 2 : 0].shape[0] / op.batch;
  const int64_t n = row_elements(request.inputs[0].shape),
                row_bytes = n * element_bytes(request.inputs[0].dtype);
  return function_kernel([=](const Call& call) {
    const int64_t first = op.batch * turn_of_step(*call.in<int32_t>(1), batches);
    const int32_t* order = ordered ? call.in<int32_t>(2) + first : nullptr;
    if (ordered) check_indices(TakeBatch::kTraits.name, "row", order, op.batch, rows);
    if (n == 0) return;
    for (int64_t i = 0; i < op.batch; ++i) {
      const std::byte* row = call.in<std::byte>(0) + (ordered ? order[i] : first + i) * row_bytes;
      if (!op.scale) {
        std::memcpy(call.out<std::byte>() + i * row_bytes, row, static_cast<size_t>(row_bytes));
        continue;
      }
      const auto* pixels = reinterpret_cast<const uint8_t*>(row);
      float* out = call.out() + i * n;
      const float scale = *op.scale;
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) out[j] = scale * static_cast<float>(pixels[j]);
    }
  });
}

}  // namespace headroom::cpu
