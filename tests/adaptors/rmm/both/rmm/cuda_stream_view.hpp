// A stand-in that follows RMM's published interface.
#pragma once
#include <cuda_runtime_api.h>

namespace rmm {
class cuda_stream_view {
 public:
  constexpr cuda_stream_view() = default;
  constexpr cuda_stream_view(cudaStream_t stream) noexcept : stream_(stream) {}
  constexpr cudaStream_t value() const noexcept { return stream_; }

 private:
  cudaStream_t stream_{};
};
}  // namespace rmm
