// What a build without the CUDA toolkit answers where the others reach for a GPU.
#include "runtime/core/cuda/devices.h"
#include "runtime/core/cuda/gpu_collective.h"
#include "runtime/core/errors.h"

namespace headroom {

std::unique_ptr<Device> make_cuda_device(const CudaSettings&) {
  throw InvalidArgument("this build has no CUDA: it was made without the CUDA toolkit 12.4 and cuDNN 9");
}

std::unique_ptr<DeviceCollective> make_shared_gpu_collective(Device&, Collective&) {
  return nullptr;
}

}  // namespace headroom
