#include "runtime/core/cuda/driver.h"

#include "runtime/core/cuda/shared_library.h"
#include "runtime/core/errors.h"

namespace headroom::cuda {

const Driver& Driver::instance() {
  static const Driver driver = [] {
    const SharedLibrary library("libcuda.so.1");
    Driver found;
    if (!library.find("cuInit", found.init) || !library.find("cuDeviceGet", found.device_get) ||
        !library.find("cuDevicePrimaryCtxRetain", found.retain_primary_context) ||
        !library.find("cuGetErrorName", found.error_name) ||
        !library.find("cuGetErrorString", found.error_string)) {
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
