#include "runtime/collective/gpu_collective.h"
#include "runtime/collective/staged_collective.h"

namespace headroom {

std::unique_ptr<DeviceCollective> make_device_collective(Device& device, Collective& host) {
  std::unique_ptr<DeviceCollective> collective = make_gpu_collective(device, host);
  if (collective == nullptr) collective = make_shared_gpu_collective(device, host);
  if (collective == nullptr) collective = std::make_unique<StagedCollective>(device, host);
  return collective;
}

}  // namespace headroom
