// Stub for a build without NCCL: GPUs cannot communicate directly.
#include "collective/gpu_collective.h"

namespace headroom {

std::unique_ptr<DeviceCollective> make_gpu_collective(Device&, Collective&) {
  return nullptr;
}

}  // namespace headroom
