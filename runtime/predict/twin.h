// The devices of a program as simulated ones that answer alike and lie nowhere, each with its strategy: on
// which plans are played. Knows no graph.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "runtime/app/setup.h"
#include "runtime/device/host/simulated_gpu.h"
#include "runtime/session/device_set.h"

namespace headroom {

class Twin {
 public:
  // All GPUs have the setup's total, and others hold of each what the map says. Throws InvalidArgument for
  // limits of virtual devices that are together above a GPU's total.
  explicit Twin(const RunSetup& setup);
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;

  // The device of that name, made when it is first asked for; virtual devices of one GPU share its memory.
  // Throws what Runtime::allocator throws.
  PlacedDevice at(const std::string& name);
  // That a name has been asked of.
  SimulatedGpu& gpu(const std::string& name) { return *gpus_.at(position_of(name)); }

 private:
  static constexpr int kCpu = -1;  // in place of a position in the map

  int position_of(const std::string& name) const;
  DeviceProfile profile_at(int position) const;

  const DeviceProfile profile_;
  const DeviceMap map_;
  const DeviceName first_;
  StrategySettings strategy_;
  const bool libraries_first_;
  std::map<int, std::unique_ptr<SimulatedGpu>> gpus_;             // by position in the map
  std::map<std::string, std::unique_ptr<Allocator>> allocators_;  // go before the GPUs
};

}  // namespace headroom
