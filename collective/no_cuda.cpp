// Stub for a build without the CUDA toolkit: replicas cannot sum in a GPU's memory.
#include "collective/gpu_collective.h"

namespace headroom {

std::unique_ptr<DeviceCollective> make_shared_gpu_collective(Device&, Collective&) {
  return nullptr;
}

}  // namespace headroom
