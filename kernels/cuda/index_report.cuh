// How a kernel reports an index outside its range, and goes on without it. Knows no op.
#pragma once

#include "runtime/device/cuda/index_faults.h"

namespace headroom::cuda {

// Whether index is in [0, extent).
__device__ inline bool in_range(int32_t index, int64_t extent) {
  return index >= 0 && index < extent;
}

// Leaves the index in `slot`, unless one at an earlier position is there.
__device__ inline void report(FaultSlot slot, int64_t position, int32_t index) {
  atomicMin(slot, static_cast<unsigned long long>(position) << 32 | static_cast<uint32_t>(index));
}

}  // namespace headroom::cuda
