// The arguments of attention kernels, and their choice and launch. Knows no arithmetic.
#pragma once

#include <cfloat>
#include <cmath>
#include <type_traits>

#include "base/errors.h"
#include "device/cuda/check.h"
#include "kernels/attention_tiles.h"
#include "kernels/cuda/fast_math.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/reals.cuh"
#include "kernels/cuda/shared_memory.h"

namespace headroom::cuda {

inline constexpr int kHeadTile = static_cast<int>(kAttentionTile);
inline constexpr int kAttentionThreads = 2 * kHeadTile;  // of a team: a warp has 16 rows of a tile

// A matrix of one head: rows of `extent` halves, `stride` apart.
struct HeadMatrix {
  uint16_t* data;
  int64_t stride;
  int rows, extent;
  bool is_aligned;  // to 16 bytes, in every row

  __device__ uint16_t* at(int row, int column) const { return data + row * stride + column; }
};

// An operand (B,rows,H,D), whose rows may have others between them.
struct HeadOperand {
  uint16_t* data;
  int rows;
  int64_t row_step;
  int group = 1;  // heads that share one of the operand's

  __device__ HeadMatrix of(const AttentionSizes& sizes, int64_t b, int64_t h, bool is_aligned) const {
    return {data + b * rows * row_step + h / group * sizes.extent, row_step, rows,
            static_cast<int>(sizes.extent), is_aligned};
  }
};

struct ScoreMask {
  Reals data;  // null without one
  MaskLayout layout;
  const MaskTile* tiles;

  __device__ MaskTile kind(const AttentionSizes& sizes, int64_t b, int64_t h, int query_tile,
                           int key_tile) const {
    if (data.data == nullptr) return MaskTile::kPlain;
    const int64_t strip = b * layout.batch_strips + h * layout.head_strips + query_tile * layout.row_strips;
    return tiles[strip * sizes.key_tiles() + key_tile];
  }
  __device__ Reals of(int64_t b, int64_t h) const {
    return data + (b * layout.batch_stride + h * layout.head_stride);
  }
};

// A number of a mask as a score is. A finite one stays finite: a row that the lowest float hides throughout
// has equal shares and not NaN. NaN stays.
__device__ inline float in_powers_of_2(float x) {
  const float power = x * kLog2E;
  return x != -HUGE_VALF && power < -FLT_MAX ? -FLT_MAX : power;
}

struct AttentionArguments {
  AttentionSizes sizes;
  ScoreMask mask;
  float scale, softcap;
  bool zero_nan_rows, is_aligned;
  HeadOperand q, k, v, y, dy, dq, dk, dv;  // y is a result of Attention
  const float* statistics;                 // also a result of Attention
  float* computed_statistics;              // where Attention writes them
  float* products;                         // dy . y of each query of each head
};

// Tiles in shared memory: kHeadTile rows of kExtent halves, and 16 bytes so that 8 rows are in all banks.
template <int kExtent>
constexpr int kHeadPitch = kExtent / 2 + 4;  // words
template <int kExtent>
constexpr int kTileWords = kHeadTile* kHeadPitch<kExtent>;

using AttentionKernel = void (*)(AttentionArguments);

// Calls instance_of(Policy, extent as a type) with the types that the operands need.
template <typename InstanceOf>
AttentionKernel choose_attention(DType stored, int64_t extent, const CudaGpu& device,
                                 InstanceOf instance_of) {
  const auto of_policy = [&](auto policy) -> AttentionKernel {
    if (extent <= 64) return instance_of(policy, std::integral_constant<int, 64>());
    return instance_of(policy, std::integral_constant<int, kMaxHeadExtent>());
  };
  const AttentionKernel kernel =
      stored == DType::kBf16 ? of_policy(Mma<Math::kBf16>()) : of_policy(Mma<Math::kF16>());
  allow_shared_memory(reinterpret_cast<const void*>(kernel), device);
  return kernel;
}

// Shared memory for so many tiles.
inline size_t bytes_of_head_tiles(int64_t extent, int tiles, int floats = 0) {
  const int words = extent <= 64 ? kTileWords<64> : kTileWords<static_cast<int>(kMaxHeadExtent)>;
  return sizeof(uint32_t) * static_cast<size_t>(tiles * words + floats);
}

inline void launch_attention(AttentionKernel kernel, int64_t blocks, size_t shared_bytes,
                             const AttentionArguments& args, cudaStream_t stream, int teams = 1) {
  if (blocks == 0) return;
  const dim3 threads(kAttentionThreads, static_cast<unsigned>(teams));
  kernel<<<static_cast<unsigned>(blocks), threads, shared_bytes, stream>>>(args);
  HR_CHECK(cudaGetLastError());
}

// Throws InvalidArgument unless the first `count` operands are of one type that the kernels take, and the
// statistics are f32.
inline void check_attention(const Request& request, size_t count, const TensorSpec& statistics) {
  if (request.device.compute_capability() < kMinCapabilityOfMma)
    throw InvalidArgument(
        "attention in 16 bits needs a GPU of compute capability 8.0 or later; --precision f32 does not");
  const DType stored = request.inputs[0].dtype;
  for (size_t i = 0; i < count; ++i) {
    if (!is_half(stored) || request.inputs[i].dtype != stored)
      throw InvalidArgument("attention has a CUDA kernel for operands of one type of 16 bits alone");
  }
  if (statistics.dtype != DType::kF32) throw InvalidArgument("attention's statistics are f32 on a GPU");
}

// The common part of both ops: sizes, and the mask, if there is one.
struct AttentionCall {
  HeadOperands heads;
  AttentionSizes sizes;
  MaskLayout layout;

  template <typename Op>
  AttentionCall(const Op& op, const Request& request)
      : heads(op, request.inputs),
        sizes(heads.q, heads.k),
        layout(request.inputs.size() > heads.mask() ? MaskLayout(request.inputs[heads.mask()].shape, sizes)
                                                    : MaskLayout()) {}

  AttentionArguments arguments(const Call& call, float scale, float softcap, bool zero_nan_rows) const {
    AttentionArguments args{.sizes = sizes,
                            .mask = {},
                            .scale = scale,
                            .softcap = softcap,
                            .zero_nan_rows = zero_nan_rows,
                            .is_aligned = false,
                            .q = {},
                            .k = {},
                            .v = {},
                            .y = {},
                            .dy = {},
                            .dq = {},
                            .dk = {},
                            .dv = {},
                            .statistics = nullptr,
                            .computed_statistics = nullptr,
                            .products = nullptr};
    args.is_aligned = sizes.extent % 8 == 0 && are_aligned(call.inputs) && are_aligned(call.outputs);
    if (layout.strips > 0)
      args.mask = {operand(call, heads.mask()), layout, call.in<MaskTile>(heads.mask() + 1)};
    return args;
  }

  // The result or its gradient.
  HeadOperand rows_of(const TensorView& y) const {
    return {y.as<uint16_t>(), static_cast<int>(sizes.queries), sizes.row_stride()};
  }
  // Operand i of q, k and v, or its gradient, of the tensors from `first` on.
  HeadOperand head(std::span<const TensorView> tensors, size_t first, size_t i) const {
    const TensorView& view = tensors[heads.is_packed() ? first : first + i];
    const int64_t offset = heads.is_packed() ? static_cast<int64_t>(i) * sizes.row_stride() : 0;
    const bool is_key = i > 0;
    return {view.as<uint16_t>() + offset, static_cast<int>(view.spec.shape[1]),
            is_key ? heads.key_step() : heads.row_step(), is_key ? static_cast<int>(sizes.group()) : 1};
  }
};

}  // namespace headroom::cuda
