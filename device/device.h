// A device, divided by its users: memory for strategies, streams to queue work, libraries and captures for
// sessions, and a target for makers of kernels. Knows no graph, no kernel and no strategy.
#pragma once

#include <cstdint>
#include <string>

#include "base/thread_pool.h"
#include "device/device_captures.h"
#include "device/device_libraries.h"
#include "device/device_memory.h"
#include "device/device_streams.h"

namespace headroom {

namespace cuda {
class CudaGpu;
}

struct DeviceInfo {
  std::string name;         // "/device:GPU:0", "/device:CPU:0"
  std::string description;  // "simulated laptop-2gb", "AMD EPYC", "NVIDIA H200"
  // CUDA compute capability, major * 10 + minor; 0 if unknown. TensorFlow's reserve depends on it.
  int compute_capability = 0;
};

// The target that kernels of a device run on: an NVIDIA GPU, or the host.
struct KernelTarget {
  cuda::CudaGpu* gpu = nullptr;   // null: on the host
  ThreadPool* threads = nullptr;  // host threads that share a loop; null: only the caller's thread
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  // Makes the context, once; later calls do nothing. Throws DeviceError when the device has no room for it.
  virtual void initialize() = 0;
  virtual DeviceMemory& memory() = 0;
  virtual DeviceStreams& streams() = 0;
  virtual DeviceLibraries& libraries() = 0;
  virtual DeviceCaptures& captures() = 0;
  virtual KernelTarget kernel_target() = 0;
  // Queues a copy of `bytes` from another device's memory to this device. On the default stream the copy runs
  // after the present work of both default streams and before their later work; on another stream of this
  // device it is ordered with that stream only. Returns false and queues nothing if only the host can copy
  // between the two. Throws DeviceError.
  virtual bool copy_from(Device& other, void* to, const void* from, int64_t bytes, Stream stream = {}) {
    (void)other, (void)to, (void)from, (void)bytes, (void)stream;
    return false;
  }

  const std::string& name() const { return info().name; }
  const std::string& description() const { return info().description; }
  int compute_capability() const { return info().compute_capability; }
};

}  // namespace headroom
