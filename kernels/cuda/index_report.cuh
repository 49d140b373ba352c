// Lets a kernel report an index out of range and continue. Knows no op.
#pragma once

#include <memory>

#include "kernels/cuda/cuda_kernels.h"

namespace headroom::cuda {

// The site where the kernels of an op report indices outside [0, extent); `what` is the word for such an
// index. Shared, because functions are copied.
inline std::shared_ptr<IndexFaults::Site> index_faults(const Request& request, std::string_view op,
                                                       std::string_view what, int64_t extent) {
  return std::make_shared<IndexFaults::Site>(request.device.index_faults().add(op, what, extent));
}

// Returns true if index is in [0, extent).
__device__ inline bool in_range(int32_t index, int64_t extent) {
  return index >= 0 && index < extent;
}

// Stores the index in `slot` unless it holds one from an earlier position.
__device__ inline void report(FaultSlot slot, int64_t position, int32_t index) {
  atomicMin(slot, static_cast<unsigned long long>(position) << 32 | static_cast<uint32_t>(index));
}

}  // namespace headroom::cuda
