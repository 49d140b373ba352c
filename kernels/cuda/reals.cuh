// Operands of floats, stored in 32 or in 16 bits: read as f32, and rounded once, to nearest and ties to even,
// when they are written. The type is a parameter, the same for all threads, so that one kernel serves every
// type. Knows no op.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/cuda_kernels.h"

namespace headroom::cuda {

// N neighboring elements, read and written with one instruction.
template <typename T, int N>
struct alignas(N * sizeof(T)) Lanes {
  T values[N];
};
template <int N, typename T>
__device__ Lanes<T, N> load(const T* from) {
  return *reinterpret_cast<const Lanes<T, N>*>(from);
}
template <int N, typename T>
__device__ void store(T* to, const Lanes<T, N>& lanes) {
  *reinterpret_cast<Lanes<T, N>*>(to) = lanes;
}
template <int N, typename T>
bool aligned(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % (N * sizeof(T)) == 0;
}

// N neighbors as stored: each in a word of its own, or two in one; a single 16-bit value is the lower half.
template <int N>
struct Stored {
  DType dtype;
  uint32_t words[N];
};

__device__ inline float float_of_half(uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}
__device__ inline uint32_t half_of(DType dtype, float value) {
  if (dtype == DType::kBf16) return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  return __half_as_ushort(__float2half_rn(value));
}
// N neighbors in words of two.
template <int N>
__device__ Lanes<uint32_t, N / 2> halves_of(DType dtype, const Lanes<float, N>& lanes) {
  Lanes<uint32_t, N / 2> words;
  if (dtype == DType::kBf16) {
#pragma unroll
    for (int k = 0; k < N / 2; ++k) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(lanes.values[2 * k], lanes.values[2 * k + 1]);
      words.values[k] = reinterpret_cast<const uint32_t&>(pair);
    }
  } else {
#pragma unroll
    for (int k = 0; k < N / 2; ++k) {
      const __half2 pair = __floats2half2_rn(lanes.values[2 * k], lanes.values[2 * k + 1]);
      words.values[k] = reinterpret_cast<const uint32_t&>(pair);
    }
  }
  return words;
}

template <int N>
__device__ Lanes<float, N> widened(const Stored<N>& stored) {
  Lanes<float, N> lanes;
  if (stored.dtype == DType::kF32) {
#pragma unroll
    for (int i = 0; i < N; ++i) lanes.values[i] = __uint_as_float(stored.words[i]);
  } else if (stored.dtype == DType::kBf16) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const uint32_t word = stored.words[i / 2];
      lanes.values[i] = __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const uint32_t word = stored.words[i / 2];
      lanes.values[i] = float_of_half(i % 2 == 0 ? word & 0xffffu : word >> 16);
    }
  }
  return lanes;
}

// Floats that a kernel reads.
struct Reals {
  const void* data = nullptr;
  DType dtype = DType::kF32;

  __host__ __device__ Reals operator+(int64_t n) const {
    return {static_cast<const char*>(data) + n * element_bytes(dtype), dtype};
  }
  template <int N>
  __device__ Stored<N> fetch(int64_t i) const {
    Stored<N> stored{dtype, {}};
    if constexpr (N == 1) {
      stored.words[0] = dtype == DType::kF32 ? static_cast<const uint32_t*>(data)[i]
                                             : uint32_t{static_cast<const uint16_t*>(data)[i]};
    } else {
      const auto take = [&](const auto& words, int at) {
#pragma unroll
        for (int k = 0; k < static_cast<int>(sizeof words / sizeof words.values[0]); ++k)
          stored.words[at + k] = words.values[k];
      };
      if (dtype == DType::kF32) {
#pragma unroll
        for (int k = 0; k < N; k += 4) take(load<4>(static_cast<const uint32_t*>(data) + i + k), k);
      } else {
        take(load<N / 2>(reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(data) + i)), 0);
      }
    }
    return stored;
  }
  __device__ float operator[](int64_t i) const {
    return widened(fetch<1>(i)).values[0];
  }
};

// Floats that a kernel writes.
struct RealsOut {
  void* data = nullptr;
  DType dtype = DType::kF32;

  __host__ __device__ RealsOut operator+(int64_t n) const {
    return {static_cast<char*>(data) + n * element_bytes(dtype), dtype};
  }
  __host__ __device__ operator Reals() const { return {data, dtype}; }
  __device__ void set(int64_t i, float value) const {
    if (dtype == DType::kF32) {
      static_cast<float*>(data)[i] = value;
    } else {
      static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(half_of(dtype, value));
    }
  }
};

template <int N>
__device__ Lanes<float, N> load(const Reals& from) {
  return widened(from.template fetch<N>(0));
}
template <int N>
__device__ void store(const RealsOut& to, const Lanes<float, N>& lanes) {
  if constexpr (N == 1) {
    to.set(0, lanes.values[0]);
  } else if (to.dtype == DType::kF32) {
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      store(static_cast<float*>(to.data) + k,
            Lanes<float, 4>{lanes.values[k], lanes.values[k + 1], lanes.values[k + 2], lanes.values[k + 3]});
    }
  } else {
    store(static_cast<uint32_t*>(to.data), halves_of(to.dtype, lanes));
  }
}
template <int N>
bool aligned(const Reals& reals) {
  return reinterpret_cast<uintptr_t>(reals.data) %
             static_cast<uintptr_t>(std::min<int64_t>(16, N * element_bytes(reals.dtype))) ==
         0;
}
template <int N>
bool aligned(const RealsOut& reals) {
  return aligned<N>(Reals(reals));
}

// Operand i of a call as a kernel takes it: floats of any size as Reals, others by their address.
inline Reals reals(const TensorView& view) {
  return {view.data, view.spec.dtype};
}
inline RealsOut reals_out(const TensorView& view) {
  return {view.data, view.spec.dtype};
}
template <typename T = float>
auto operand(const KernelCall& call, size_t i) {
  if constexpr (std::is_same_v<T, float>) {
    return reals(call.inputs[i]);
  } else {
    return call.in<T>(i);
  }
}
template <typename T = float>
auto result(const KernelCall& call, size_t i = 0) {
  if constexpr (std::is_same_v<T, float>) {
    return reals_out(call.outputs[i]);
  } else {
    return call.out<T>(i);
  }
}

// Like Stored, for neighbors that are known to be stored in 16 bits: half the registers.
template <int N>
struct StoredHalves {
  DType dtype;
  uint32_t words[N / 2];
};
template <int N>
__device__ StoredHalves<N> fetch_halves(const Reals& from, int64_t i) {
  StoredHalves<N> stored{from.dtype, {}};
  const auto words =
      load<N / 2>(reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(from.data) + i));
#pragma unroll
  for (int k = 0; k < N / 2; ++k) stored.words[k] = words.values[k];
  return stored;
}
template <int N>
__device__ Lanes<float, N> widened(const StoredHalves<N>& stored) {
  Lanes<float, N> lanes;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const uint32_t word = stored.words[i / 2];
    lanes.values[i] = stored.dtype == DType::kBf16
                          ? __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u)
                          : float_of_half(i % 2 == 0 ? word & 0xffffu : word >> 16);
  }
  return lanes;
}

// L neighbors of a large operand, which a kernel keeps until all its loads are on their way. Eight of them
// are stored in 16 bits.
template <int L>
__device__ auto fetch_packed(const Reals& from, int64_t i) {
  if constexpr (L == 8) {
    return fetch_halves<8>(from, i);
  } else {
    return from.template fetch<L>(i);
  }
}
template <int L>
using Packed = decltype(fetch_packed<L>(Reals(), int64_t{}));

// Returns the number of neighbors per thread, 16 bytes: 8 if all tensors of that many elements are stored in
// 16 bits or fewer.
inline int packed_lanes(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                        int64_t elements) {
  const auto all_half = [&](std::span<const TensorView> views) {
    return std::all_of(views.begin(), views.end(), [&](const TensorView& view) {
      return view.elements() != elements || element_bytes(view.spec.dtype) <= 2;
    });
  };
  return all_half(inputs) && all_half(outputs) ? 8 : 4;
}
// Returns true if all start at an address from which 16 bytes can be read at once.
inline bool are_aligned(std::span<const TensorView> views) {
  return std::all_of(views.begin(), views.end(),
                     [](const TensorView& view) { return reinterpret_cast<uintptr_t>(view.data) % 16 == 0; });
}

// Loads neighbors of any operand as they are stored, and converts them to numbers.
template <int N, typename T>
__device__ Lanes<T, N> fetch(const T* from, int64_t i) {
  return load<N>(from + i);
}
template <int N>
__device__ Stored<N> fetch(const Reals& from, int64_t i) {
  return from.template fetch<N>(i);
}
template <int N, typename T>
__device__ const Lanes<T, N>& widened(const Lanes<T, N>& lanes) {
  return lanes;
}
template <typename T, typename V>
__device__ void put(T* to, int64_t i, const V& value) {
  to[i] = value;
}
__device__ inline void put(const RealsOut& to, int64_t i, float value) {
  to.set(i, value);
}

// Elements that a thread takes at once: 16 bytes.
inline int lanes_of(std::span<const TensorView> operands) {
  return std::any_of(operands.begin(), operands.end(),
                     [](const TensorView& view) { return is_half(view.spec.dtype); })
             ? 8
             : 4;
}

}  // namespace headroom::cuda
