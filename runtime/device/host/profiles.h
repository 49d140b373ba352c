// A simulated GPU in plain numbers. A profile decides what the driver returns, never what a strategy does.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/device/host/host_stream_pool.h"
#include "runtime/device/host/host_virtual_memory.h"

namespace headroom {

// The bytes that a library takes on a device, and its status when it cannot start.
struct LibraryProfile {
  int64_t handle_bytes = 0;
  int64_t needed_bytes = 0;  // must be free for the handle to be made; at least handle_bytes
  int64_t module_bytes = 0;  // its kernels, loaded at the first use of any
  std::string failure_status;
};

struct DeviceProfile {
  std::string name;
  std::string description;
  std::string model = {};      // as the driver names it; unknown when empty
  int gpus = 1;                // of the machine, all alike
  int compute_capability = 0;  // major * 10 + minor
  int64_t total_bytes = 0;
  int64_t others_bytes = 0;  // held by other processes
  int64_t context_bytes = 0;
  int64_t own_module_bytes = 0;  // kernels that belong to no library, loaded at the first use of any
  LibraryProfile blas;
  LibraryProfile dnn;
  int64_t granularity_bytes = 0;
  double driver_call_us = 0;          // one call that maps or unmaps pages
  double small_driver_call_us = 0;    // one that does not: a small allocation, a copy
  VirtualMemoryCosts virtual_memory;  // per call on a physical block
  StreamPoolCosts stream_pool;
  // The time of work on the clock of the streams. With 0, as in all built-in profiles, work is done as soon
  // as it is queued.
  double kernel_us = 0;
  double copy_bytes_per_us = 0;

  // Context, handles and all kernels together.
  int64_t overhead_bytes() const {
    return context_bytes + own_module_bytes + blas.handle_bytes + blas.module_bytes + dnn.handle_bytes +
           dnn.module_bytes;
  }
};

// All profiles, to be copied and changed at will.
std::span<const DeviceProfile> device_profiles();

// The profile of that name. Throws InvalidArgument listing the known ones, with the nearest as a suggestion.
const DeviceProfile& find_profile(std::string_view name);

}  // namespace headroom
