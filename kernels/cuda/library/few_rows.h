// Products of a few rows, whose time is that of reading the weights once. Knows no op and no library.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/tensor.h"
#include "device/cuda/cuda_gpu.h"

namespace headroom::cuda {

// Rows of a tile of the tensor cores.
inline constexpr int kMaxFewRows = 16;

// x (rows,terms) times w (columns,terms) transposed, both stored in 16 bits of one type, and the bias
// (columns) and c, a matrix like y, if they have data. Operands start at multiples of 16 bytes.
struct FewRows {
  int rows;
  int64_t columns, terms;
  DType read, computed;  // types of x and w; of all others
  const uint16_t *x, *w;
  const void *bias, *c;
  void* y;
};

// Returns true if the kernel takes such a product.
bool takes_few_rows(const CudaGpu& device, DType read, int64_t rows, int64_t terms);
// The early_inputs of a kernel whose operand 1 is w.
std::optional<std::vector<int>> early_inputs_of_few_rows(const CudaGpu& device);
// Queues it. Starts early: until earlier work is done it reads only w.
void multiply_few_rows(const CudaGpu& device, const FewRows& product, cudaStream_t stream);

}  // namespace headroom::cuda
