// Twins of a program's devices: simulated devices without bytes that behave the same, each with its strategy.
// Knows no graph.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "device/host/simulated_gpu.h"
#include "runtime/app/setup.h"
#include "runtime/session/device_set.h"

namespace headroom {

class Machine {
 public:
  // All GPUs have the setup's total; the map says what other processes hold of each. Throws InvalidArgument
  // when the limits of virtual devices together exceed a GPU's total.
  explicit Machine(const RunSetup& setup);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // The device of that name with its strategy, made at the first call; virtual devices of one GPU share its
  // memory. Throws as Runtime::allocator does.
  PlacedDevice at(const std::string& name);
  // The GPU of the device of that name, or what stands for the CPU, made at the first call.
  SimulatedGpu& gpu(const std::string& name);

 private:
  static constexpr int kCpu = -1;  // instead of a position in the map

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
