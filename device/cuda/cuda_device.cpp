#include "device/cuda/cuda_device.h"

#include <optional>

#include "device/cuda/check.h"
#include "device/cuda/current_device.h"

namespace headroom {

std::unique_ptr<Device> make_cuda_device(const CudaSettings& settings) {
  return std::make_unique<cuda::CudaDevice>(settings);
}

namespace cuda {

// Only these two events order the default streams of two GPUs. If the GPUs cannot access each other's memory,
// the driver copies through the host.
bool CudaDevice::copy_from(Device& other, void* to, const void* from, int64_t bytes, Stream stream) {
  const CudaGpu* const source = other.kernel_target().gpu;
  if (source == nullptr) return false;
  if (stream != Stream{}) {
    // A capture refuses cudaMemcpyPeerAsync, and takes the copy that finds the GPUs from the addresses.
    const CurrentDevice current(gpu_.ordinal());
    HR_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_of(stream)));
    return true;
  }
  std::optional<CudaEvent> written, copied;
  {
    const CurrentDevice current(source->ordinal());
    written.emplace(nullptr);
  }
  {
    const CurrentDevice current(gpu_.ordinal());
    written->make_wait(nullptr);
    HR_CHECK(cudaMemcpyPeerAsync(to, gpu_.ordinal(), from, source->ordinal(), static_cast<size_t>(bytes), nullptr));
    copied.emplace(nullptr);
  }
  const CurrentDevice current(source->ordinal());
  copied->make_wait(nullptr);
  return true;
}

}  // namespace cuda
}  // namespace headroom
