#include <algorithm>

#include "collective/collective.h"
#include "collective/gpu_collective.h"
#include "collective/staged_collective.h"

namespace headroom {
namespace {

// Returns true if no device appears twice among the devices of all ranks.
bool is_each_apart(std::span<Device* const> devices, Collective& host) {
  std::vector<const Device*> all;
  for (int root = 0; root < host.size(); ++root) {
    std::vector<const Device*> of_rank(devices.begin(), devices.end());
    host.broadcast(std::as_writable_bytes(std::span(of_rank)), root);
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  std::ranges::sort(all);
  return std::ranges::adjacent_find(all) == all.end();
}

}  // namespace

std::unique_ptr<DeviceCollective> make_device_collective(Device& device, Collective& host) {
  std::unique_ptr<DeviceCollective> collective = make_gpu_collective(device, host);
  if (collective == nullptr) collective = make_shared_gpu_collective(device, host);
  if (collective == nullptr) collective = std::make_unique<StagedCollective>(device, host);
  return collective;
}

std::vector<std::unique_ptr<DeviceCollective>> make_device_collectives(std::span<Device* const> devices,
                                                                       Collective& host) {
  std::vector<std::unique_ptr<DeviceCollective>> collectives;
  if (devices.size() == 1) {
    collectives.push_back(make_device_collective(*devices[0], host));
    return collectives;
  }
  const bool is_apart = is_each_apart(devices, host);
  for (Device* const device : devices) {
    std::unique_ptr<DeviceCollective> collective = is_apart ? make_gpu_collective(*device, host) : nullptr;
    if (collective == nullptr) collective = std::make_unique<StagedCollective>(*device, host);
    collectives.push_back(std::move(collective));
  }
  return collectives;
}

}  // namespace headroom
