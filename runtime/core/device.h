// A device: its memory, its libraries and its names. Knows no graph, no kernel and no strategy.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/core/device_memory.h"

namespace headroom {

// Work queue of a device; a null handle is the default stream. Simulated devices and the CPU run at once.
struct Stream {
  void* handle = nullptr;
  bool operator==(const Stream&) const = default;
};

// Libraries whose handle takes device memory when it is made. kBlas multiplies matrices, kDnn convolves.
enum class Library : uint8_t { kNone, kBlas, kDnn };

enum class DeviceKind : uint8_t { kCpu, kSimulatedGpu, kCuda };

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  // "/device:GPU:0", "/device:CPU:0".
  virtual const std::string& name() const = 0;
  // "simulated laptop-2gb", "AMD EPYC", "NVIDIA H200".
  virtual const std::string& description() const = 0;
  // CUDA compute capability, major * 10 + minor; 0 where there is none. TensorFlow's reserve depends on it.
  virtual int compute_capability() const = 0;

  virtual DeviceMemory& memory() = 0;

  // Makes the context, once; later calls do nothing. Throws DeviceError when the device has no room for it.
  virtual void initialise() = 0;
  // Makes the library's handle, once. Throws LibraryError when it cannot, with the failing call's status and
  // the lines that a user sees; a later call tries again.
  virtual void start_library(Library library) = 0;
  // Loads the code of one op, once per op name, as lazy module loading does at the first launch. Throws
  // DeviceError.
  virtual void load_module(std::string_view op_name, Library library) = 0;
  // What start_library and load_module may still take from the device, in bytes: the room that a cap on the
  // whole process has to leave. Falls by what each of them takes; 0 where libraries take nothing.
  virtual int64_t pending_library_bytes() const = 0;
  // Waits until everything queued on `stream` is done.
  virtual void synchronize(Stream stream) = 0;
  // Time spent in driver calls so far, on the device's own clock: simulated time on a simulated GPU.
  virtual double driver_time_us() const = 0;
};

}  // namespace headroom
