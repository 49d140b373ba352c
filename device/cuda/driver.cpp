#include "device/cuda/driver.h"

#include "base/errors.h"
#include "device/cuda/shared_library.h"

namespace headroom::cuda {

const Driver& Driver::instance() {
  static const Driver driver = [] {
    const SharedLibrary library("libcuda.so.1");
    Driver found;
    if (!library.find("cuInit", found.init) || !library.find("cuDeviceGet", found.device_get) ||
        !library.find("cuDevicePrimaryCtxGetState", found.get_primary_context_state) ||
        !library.find("cuDevicePrimaryCtxRetain", found.retain_primary_context) ||
        !library.find("cuGetErrorName", found.error_name) ||
        !library.find("cuGetErrorString", found.error_string) ||
        !library.find("cuMemGetAllocationGranularity", found.get_granularity) ||
        !library.find("cuMemAddressReserve", found.reserve_addresses) ||
        !library.find("cuMemAddressFree", found.free_addresses) ||
        !library.find("cuMemCreate", found.create_memory) ||
        !library.find("cuMemRelease", found.release_memory) || !library.find("cuMemMap", found.map_memory) ||
        !library.find("cuMemUnmap", found.unmap_memory) ||
        !library.find("cuMemSetAccess", found.set_access) ||
        !library.find("cuLibraryLoadData", found.load_library) ||
        !library.find("cuLibraryGetKernel", found.get_kernel) ||
        !library.find("cuLibraryUnload", found.unload_library) ||
        !library.find("cuLaunchKernel", found.launch_kernel)) {
      throw DeviceError("dlopen(libcuda.so.1)", "not found", "no NVIDIA driver is installed", "");
    }
    return found;
  }();
  return driver;
}

std::string Driver::name_of(CUresult status) const {
  const char* text = nullptr;
  return error_name(status, &text) == CUDA_SUCCESS && text != nullptr ? text : std::to_string(status);
}

std::string Driver::description_of(CUresult status) const {
  const char* text = nullptr;
  return error_string(status, &text) == CUDA_SUCCESS && text != nullptr ? text : "unknown status";
}

}  // namespace headroom::cuda
