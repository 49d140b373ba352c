// The CPU as a device: work runs at once, libraries take nothing. Knows no kernel.
#pragma once

#include <optional>

#include "device/device.h"
#include "device/host/cpu_memory.h"
#include "device/host/host_captures.h"
#include "device/host/simulated_streams.h"

namespace headroom {

// Threads of one kernel, and of a capture for independent kernels.
struct CpuThreads {
  int intra_op = 1;
  int inter_op = 1;
};

class CpuDevice final : public Device {
 public:
  // The capacity is the machine's physical memory unless given. Throws InvalidArgument for one below one
  // byte, and for fewer than one thread.
  explicit CpuDevice(std::optional<int64_t> capacity_bytes = std::nullopt, CpuThreads threads = {});

  const DeviceInfo& info() const override { return info_; }
  void initialize() override {}
  DeviceMemory& memory() override { return memory_; }
  DeviceStreams& streams() override { return streams_; }
  DeviceLibraries& libraries() override { return libraries_; }
  DeviceCaptures& captures() override { return captures_; }
  KernelTarget kernel_target() override { return {.threads = &kernel_threads_}; }

 private:
  const DeviceInfo info_;
  SimulatedStreams streams_;
  CpuMemory memory_;
  DeviceLibraries libraries_;
  HostCaptures captures_;
  ThreadPool kernel_threads_;
};

}  // namespace headroom
