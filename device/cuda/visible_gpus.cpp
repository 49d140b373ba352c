#include "device/cuda/visible_gpus.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <cstdlib>

#include "base/errors.h"
#include "device/cuda/nvml.h"
#include "device/gpus.h"

namespace headroom {
namespace cuda {
namespace {

// Returns the reason that no GPU was found, in one line. `status` is cudaGetDeviceCount's.
std::string why_none(cudaError_t status) {
  if (status == cudaErrorInsufficientDriver) {
    const Nvml* nvml = Nvml::instance();
    if (nvml == nullptr) return "no GPU: no NVIDIA driver is installed";
    return fmt::format("no GPU: driver {} is older than CUDA {}.{} needs", nvml->driver_version(),
                       CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  }
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if ((status == cudaErrorNoDevice || status == cudaSuccess) && visible != nullptr) {
    return fmt::format("no GPU is visible: CUDA_VISIBLE_DEVICES='{}'", visible);
  }
  return fmt::format("no GPU: {}: {}", cudaGetErrorName(status), cudaGetErrorString(status));
}

}  // namespace

int count_gpus() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  throw InvalidArgument(why_none(status));
}

std::string pci_bus_id_of(int ordinal) {
  char text[32] = "";
  // HR_CHECK would need cuBLAS and cuDNN.
  const cudaError_t status = cudaDeviceGetPCIBusId(text, sizeof text, ordinal);
  if (status == cudaSuccess) return text;
  cudaGetLastError();
  throw DeviceError("cudaDeviceGetPCIBusId", cudaGetErrorName(status), cudaGetErrorString(status),
                    "device/cuda/visible_gpus.cpp");
}

}  // namespace cuda

std::vector<std::string> visible_gpus() {
  std::vector<std::string> result(static_cast<size_t>(cuda::count_gpus()));
  for (size_t i = 0; i < result.size(); ++i) result[i] = cuda::pci_bus_id_of(static_cast<int>(i));
  return result;
}

}  // namespace headroom
