// The few calls of the CUDA driver that the runtime library does not offer. Knows no device.
#pragma once

#include <cuda.h>

#include <string>

namespace headroom::cuda {

struct Driver {
  decltype(&cuInit) init = nullptr;
  decltype(&cuDeviceGet) device_get = nullptr;
  decltype(&cuDevicePrimaryCtxGetState) get_primary_context_state = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) retain_primary_context = nullptr;
  decltype(&cuGetErrorName) error_name = nullptr;
  decltype(&cuGetErrorString) error_string = nullptr;
  decltype(&cuMemGetAllocationGranularity) get_granularity = nullptr;
  decltype(&cuMemAddressReserve) reserve_addresses = nullptr;
  decltype(&cuMemAddressFree) free_addresses = nullptr;
  decltype(&cuMemCreate) create_memory = nullptr;
  decltype(&cuMemRelease) release_memory = nullptr;
  decltype(&cuMemMap) map_memory = nullptr;
  decltype(&cuMemUnmap) unmap_memory = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuLibraryLoadData) load_library = nullptr;
  decltype(&cuLibraryGetKernel) get_kernel = nullptr;
  decltype(&cuLibraryUnload) unload_library = nullptr;
  decltype(&cuLaunchKernel) launch_kernel = nullptr;

  // Loads libcuda.so.1 at the first call, with dlopen, because cudaGetDriverEntryPoint is deprecated since
  // CUDA 13 and its successor missing before 12.5. Throws DeviceError if no driver is installed.
  static const Driver& instance();

  // "CUDA_ERROR_OUT_OF_MEMORY" and "out of memory".
  std::string name_of(CUresult status) const;
  std::string description_of(CUresult status) const;
};

}  // namespace headroom::cuda
