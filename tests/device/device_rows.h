// Every kind of device, for tests of their common promises. A new kind is one row.
#pragma once

#include <memory>

#include "device/gpus.h"
#include "device/host/cpu_device.h"
#include "device/host/simulated_gpu.h"

namespace headroom {

struct DeviceRow {
  const char* name;
  std::unique_ptr<Device> (*make)();
  bool needs_cuda = false;
};

inline constexpr DeviceRow kDeviceRows[] = {
    {"Cpu", []() -> std::unique_ptr<Device> { return std::make_unique<CpuDevice>(); }},
    {"SimulatedGpu", []() -> std::unique_ptr<Device> { return make_simulated_gpu("laptop-2gb"); }},
    {"Cuda", [] { return make_cuda_device({}); }, true},
};

}  // namespace headroom
