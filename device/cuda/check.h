// Turns the status of a CUDA call into an error with the call's text, the status' name, its description and
// the place. Knows no device.
#pragma once

#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <cudnn.h>

namespace headroom::cuda {

// Throw DeviceError (driver and runtime) or LibraryError (cuBLAS, cuDNN) unless the status is success.
void check(cudaError_t status, const char* call, const char* file, int line);
void check(CUresult status, const char* call, const char* file, int line);
void check(cublasStatus_t status, const char* call, const char* file, int line);
void check(cudnnStatus_t status, const char* call, const char* file, int line);

}  // namespace headroom::cuda

#define HR_CHECK(call) ::headroom::cuda::check((call), #call, __FILE__, __LINE__)
