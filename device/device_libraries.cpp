#include "device/device_libraries.h"

#include <fmt/format.h>

#include <utility>

namespace headroom {
namespace {

// TensorFlow 2.5's StreamExecutor asked four times before it went on without BLAS, in the log this project
// reproduces.
constexpr int kBlasAttempts = 4;

constexpr unsigned bit_of(Library library) {
  return 1u << static_cast<unsigned>(library);
}

}  // namespace

void DeviceLibraries::expect(std::span<const Library> libraries) {
  for (const Library library : libraries) expected_ |= bit_of(library);
}

bool DeviceLibraries::is_expected(Library library) const {
  const unsigned expected = expected_;
  return expected == 0 || (expected & bit_of(library)) != 0;
}

std::string usual_start_status(Library library) {
  return library == Library::kBlas ? "CUBLAS_STATUS_ALLOC_FAILED" : "CUDNN_STATUS_INTERNAL_ERROR";
}

LibraryError library_start_failure(Library library, const std::string& status, const std::string& reason) {
  if (library == Library::kBlas) {
    const std::string line = "failed to create cublas handle: " + status;
    std::vector<std::string> log(kBlasAttempts, line);
    log.push_back("attempting to perform BLAS operation using StreamExecutor without BLAS support");
    return LibraryError(fmt::format("{} ({})", line, reason), "cublasCreate", status, std::move(log));
  }
  return LibraryError(
      fmt::format("Failed to get convolution algorithm. This is probably because cuDNN failed to initialize, "
                  "so try looking to see if a warning log message was printed above. ({})",
                  reason),
      "cudnnCreate", status, {"Could not create cudnn handle: " + status});
}

DeviceError context_failure(int ordinal, const std::string& status, const std::string& description,
                            int64_t total_bytes) {
  return DeviceError(fmt::format("failed initializing StreamExecutor for CUDA device ordinal {}: Internal: "
                                 "failed call to cuDevicePrimaryCtxRetain: {}: {}; total memory reported: {}",
                                 ordinal, status, description, total_bytes),
                     "cuDevicePrimaryCtxRetain", status);
}

}  // namespace headroom
