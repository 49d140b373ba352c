// The devices that a graph runs on, each with its memory strategy. Knows no graph.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allocators/allocator.h"
#include "device/device.h"

namespace headroom {

class DeviceCollective;

struct PlacedDevice {
  std::string name;  // "/device:GPU:1"; virtual devices of one GPU are one Device under several names
  Device* device = nullptr;
  Allocator* allocator = nullptr;
  // The graph's name for it; empty: its own name. The graph of a replica counts devices from the replica's
  // first.
  std::string in_graph = {};
  DeviceCollective* collective = nullptr;  // with this device's like in the other replicas; null without any
};

// The first is the default device. Devices, strategies and collectives must outlive the set and its users.
class DeviceSet {
 public:
  DeviceSet(Device& device, Allocator& allocator, DeviceCollective* collective = nullptr)
      : DeviceSet(std::vector<PlacedDevice>{{device.name(), &device, &allocator, {}, collective}}) {}
  // At least one.
  explicit DeviceSet(std::vector<PlacedDevice> all);

  const PlacedDevice& front() const { return all_.front(); }
  std::span<const PlacedDevice> all() const { return all_; }
  // Returns the device that the graph calls so, the first one for an empty name. kHostPlace is the
  // page-locked host memory of the first one, which is not among all(): the same Device with another
  // strategy. Throws InvalidArgument if there is none.
  const PlacedDevice& find(std::string_view name) const;

 private:
  struct HostPlace;

  std::vector<PlacedDevice> all_;
  std::shared_ptr<const HostPlace> host_;
};

// Copies `bytes` from one device's memory to another's, in order with the earlier and later work of the
// default streams of both; on another stream of `to`, as Device::copy_from does. Throws DeviceError.
void copy_between(Device& from, const void* source, Device& to, void* target, int64_t bytes,
                  Stream stream = {});

}  // namespace headroom
