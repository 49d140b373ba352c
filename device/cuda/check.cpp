#include "device/cuda/check.h"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "base/errors.h"
#include "device/cuda/driver.h"

namespace headroom::cuda {
namespace {

// "cudaMalloc(&p, n)" -> "cudaMalloc".
std::string name_of(std::string_view call) {
  return std::string(call.substr(0, call.find('(')));
}

// The path from the top of the project, however the compiler was called.
std::string place_of(std::string_view file, int line) {
  for (std::string_view top : {"/runtime/", "/kernels/", "/allocators/", "/tests/", "/tools/"}) {
    const size_t at = file.rfind(top);
    if (at != std::string_view::npos) return fmt::format("{}:{}", file.substr(at + 1), line);
  }
  return fmt::format("{}:{}", file, line);
}

[[noreturn]] void throw_library_error(std::string_view call, const std::string& status,
                                      std::string_view description, std::string_view file, int line) {
  throw LibraryError(fmt::format("{}: {}: {} ({})", call, status, description, place_of(file, line)),
                     name_of(call), status, {});
}

}  // namespace

void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that does not stick must not show up at the next call
  throw DeviceError(call, cudaGetErrorName(status), cudaGetErrorString(status), place_of(file, line));
}

void check(CUresult status, const char* call, const char* file, int line) {
  if (status == CUDA_SUCCESS) return;
  const Driver& driver = Driver::instance();
  throw DeviceError(call, driver.name_of(status), driver.description_of(status), place_of(file, line));
}

void check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw_library_error(call, cublasGetStatusName(status), cublasGetStatusString(status), file, line);
}

void check(cudnnStatus_t status, const char* call, const char* file, int line) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char detail[512] = "";
  cudnnGetLastErrorString(detail, sizeof detail);
  throw_library_error(call, cudnnGetErrorString(status), detail, file, line);
}

}  // namespace headroom::cuda
