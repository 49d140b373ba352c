// Products of a few rows: a warp multiplies all rows by 8 columns, a column's weights are neighbors in
// memory, and the warps of a block share the terms. The tensor cores have time for the rows that are not
// there.
#include "kernels/cuda/device_loops.cuh"
#include "kernels/cuda/early_start.cuh"
#include "kernels/cuda/library/few_rows.h"
#include "kernels/cuda/mma.cuh"

namespace headroom::cuda {
namespace {

constexpr int kWarpsOfProduct = 8, kColumnsOfTile = 8;
// Terms that a warp takes at once: 16 bytes for each lane. The four words of a lane are two steps of the
// tensor cores, whatever their order, if it is the same in both operands.
constexpr int kTermsAtOnce = 32, kTermsOfLane = 8;
constexpr int kAhead = 4;  // groups of terms on their way

__device__ inline uint4 words_at(const uint16_t* row, int64_t term, int64_t terms, bool is_there) {
  if (!is_there || term >= terms) return uint4{0, 0, 0, 0};
  return *reinterpret_cast<const uint4*>(row + term);
}
// Weights are not read again in this step.
__device__ inline uint4 weights_at(const uint16_t* row, int64_t term, int64_t terms, bool is_there) {
  if (!is_there || term >= terms) return uint4{0, 0, 0, 0};
  return __ldcs(reinterpret_cast<const uint4*>(row + term));
}

template <typename Policy, int kTiles>
__global__ void __launch_bounds__(32 * kWarpsOfProduct)
    multiply_rows_of_block(const __grid_constant__ FewRows p) {
  __shared__ float parts[kWarpsOfProduct][kMaxFewRows][kTiles * kColumnsOfTile];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int g = lane / 4, t = lane % 4;  // as in mma.cuh
  const int64_t first_column = int64_t{blockIdx.x} * kTiles * kColumnsOfTile;
  const uint16_t* const w = p.w + (first_column + g) * p.terms;
  const int64_t first_term = warp * kTermsAtOnce + t * kTermsOfLane, step = kWarpsOfProduct * kTermsAtOnce;
  uint4 weights[kAhead][kTiles];
  const auto fetch = [&](int i, int64_t term) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      weights[i][tile] = weights_at(w + tile * kColumnsOfTile * p.terms, term, p.terms,
                                    first_column + tile * kColumnsOfTile + g < p.columns);
    }
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) fetch(i, first_term + i * step);
  wait_for_earlier_work();
  const uint16_t *const low = p.x + g * p.terms, *const high = low + 8 * p.terms;
  float sums[kTiles][4] = {};
  for (int64_t base = first_term; base < p.terms + t * kTermsOfLane; base += kAhead * step) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t term = base + i * step;
      const uint4 a = words_at(low, term, p.terms, g < p.rows);
      const uint4 b = words_at(high, term, p.terms, g + 8 < p.rows);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4& c = weights[i][tile];
        Policy::multiply_add(sums[tile], {a.x, b.x, a.y, b.y}, {c.x, c.y});
        Policy::multiply_add(sums[tile], {a.z, b.z, a.w, b.w}, {c.z, c.w});
      }
      fetch(i, term + kAhead * step);
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      parts[warp][g + i / 2 * 8][tile * kColumnsOfTile + 2 * t + i % 2] = sums[tile][i];
  }
  __syncthreads();
  constexpr int kColumns = kTiles * kColumnsOfTile;
  for (int i = static_cast<int>(threadIdx.x); i < p.rows * kColumns; i += 32 * kWarpsOfProduct) {
    const int row = i / kColumns;
    const int64_t column = first_column + i % kColumns;
    if (column >= p.columns) continue;
    float sum = 0;
#pragma unroll
    for (int part = 0; part < kWarpsOfProduct; ++part) sum += parts[part][row][i % kColumns];
    if (p.bias != nullptr) sum += Reals{p.bias, p.computed}[column];
    if (p.c != nullptr) sum += Reals{p.c, p.computed}[row * p.columns + column];
    RealsOut{p.y, p.computed}.set(row * p.columns + column, sum);
  }
}

template <int kTiles>
void launch_tiles(const FewRows& product, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(product.columns, kTiles * kColumnsOfTile));
  const auto kernel = product.read == DType::kBf16 ? multiply_rows_of_block<Mma<Math::kBf16>, kTiles>
                                                   : multiply_rows_of_block<Mma<Math::kF16>, kTiles>;
  launch(kernel, blocks, 32 * kWarpsOfProduct, stream, product);
}

}  // namespace

std::optional<std::vector<int>> early_inputs_of_few_rows(const CudaGpu& device) {
  return starts_early(device, {1});
}

bool takes_few_rows(const CudaGpu& device, DType read, int64_t rows, int64_t terms) {
  return device.compute_capability() >= kMinCapabilityOfMma && is_half(read) && rows <= kMaxFewRows &&
         terms % kTermsOfLane == 0;
}

void multiply_few_rows(const CudaGpu& device, const FewRows& product, cudaStream_t stream) {
  // As few blocks as keep every multiprocessor busy: a block reads all rows once.
  const int64_t tiles = ceil_div(product.columns, kColumnsOfTile), enough = 2 * device.multiprocessors();
  if (tiles >= 4 * enough) return launch_tiles<4>(product, stream);
  if (tiles >= 2 * enough) return launch_tiles<2>(product, stream);
  launch_tiles<1>(product, stream);
}

}  // namespace headroom::cuda
