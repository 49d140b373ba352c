#include "runtime/device/host/profiles.h"

#include <fmt/format.h>

#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/errors.h"
#include "runtime/base/text.h"

namespace headroom {
namespace {

constexpr int64_t kPage = 2 * kMiB;  // cudaMalloc's on every GPU since Pascal

// Measured on an H200 (CUDA 13.0): 1 MiB takes 46 us to get and 38 us to give back, 512 B takes 2.2 us.
constexpr double kCallUs = 42;
constexpr double kSmallCallUs = 2.2;

// Measured there too, the first figure for 2 MiB and the second for 256: creating takes 7 us, mapping 0.6 and
// setting the access 19 to 36, unmapping 13 to 19, releasing 8 to 67.
constexpr CallCost between(double us_at_2_mib, double us_at_256_mib) {
  const double us_per_mib = (us_at_256_mib - us_at_2_mib) / (256 - 2);
  return {us_at_2_mib - 2 * us_per_mib, us_per_mib};
}
constexpr VirtualMemoryCosts kVirtualMemory = {.reserve = {10, 0},
                                               .create = {7, 0},
                                               .map = between(19.6, 36.6),
                                               .unmap = between(13, 19),
                                               .release = between(8, 67)};

// cudaMallocAsync and cudaFreeAsync of 1 MiB there, with the pool kept; a pool that grows takes pages as
// cudaMalloc does.
constexpr StreamPoolCosts kStreamPool = {.allocate_us = 2.1, .release_us = 0.9, .grow_us = kCallUs};

// The report about TensorFlow on such a laptop gives only the sum for context, handles and kernels: 431 MiB =
// 1455 - 1024. The split is chosen to reproduce its three runs: of the 225 MiB that the default strategy
// leaves, cuDNN's handle and kernels get their part, and too little is left for cuBLAS's handle.
const DeviceProfile kLaptop2Gb = {
    .name = "laptop-2gb",
    .description = "laptop GPU of 2002 MiB with a desktop on it, CUDA 11.4, cuDNN 8.2",
    .compute_capability = 61,
    .total_bytes = 2002 * kMiB,
    .others_bytes = 329 * kMiB,
    .context_bytes = 140 * kMiB,
    .own_module_bytes = 10 * kMiB,
    .blas = {.handle_bytes = 100 * kMiB,
             .needed_bytes = 100 * kMiB,
             .module_bytes = 21 * kMiB,
             .failure_status = "CUBLAS_STATUS_NOT_INITIALIZED"},
    .dnn = {.handle_bytes = 130 * kMiB,
            .needed_bytes = 130 * kMiB,
            .module_bytes = 30 * kMiB,
            .failure_status = "CUDNN_STATUS_INTERNAL_ERROR"},
    .granularity_bytes = kPage,
    .driver_call_us = kCallUs,
    .small_driver_call_us = kSmallCallUs,
    .virtual_memory = kVirtualMemory,
    .stream_pool = kStreamPool,
};

// As reported of PyTorch on such a card: a first small tensor shows 448 = 446 + 2 MiB, so kernels of its own
// count to the context; others hold 931.56 = 6144 - 446 - 5 x 916 - 186.44. It says nothing of the model
// (compute capability 7.5 is the RTX 2060's) nor of handles, which are the H200's.
const DeviceProfile kCard6Gb = {
    .name = "card-6gb",
    .description = "desktop card of 6 GiB in use by others",
    .compute_capability = 75,
    .total_bytes = 6144 * kMiB,
    .others_bytes = 931 * kMiB + 576 * kKiB,
    .context_bytes = 446 * kMiB,
    .own_module_bytes = 0,
    .blas = {.handle_bytes = 64 * kMiB,
             .needed_bytes = 64 * kMiB,
             .module_bytes = 0,
             .failure_status = "CUBLAS_STATUS_NOT_INITIALIZED"},
    .dnn = {.handle_bytes = 12 * kMiB,
            .needed_bytes = 12 * kMiB,
            .module_bytes = 0,
            .failure_status = "CUDNN_STATUS_INTERNAL_ERROR"},
    .granularity_bytes = kPage,
    .driver_call_us = kCallUs,
    .small_driver_call_us = kSmallCallUs,
    .virtual_memory = kVirtualMemory,
    .stream_pool = kStreamPool,
};

// What was reported of four of them gives the total alone; the costs are the 2 GB laptop's, of the same
// software.
const DeviceProfile kRtx2080Ti = {
    .name = "rtx-2080ti",
    .description = "GeForce RTX 2080 Ti",
    .model = "GeForce RTX 2080 Ti",
    .compute_capability = 75,
    .total_bytes = 11'554'717'696,
    .others_bytes = 0,
    .context_bytes = 140 * kMiB,
    .own_module_bytes = 10 * kMiB,
    .blas = kLaptop2Gb.blas,
    .dnn = kLaptop2Gb.dnn,
    .granularity_bytes = kPage,
    .driver_call_us = kCallUs,
    .small_driver_call_us = kSmallCallUs,
    .virtual_memory = kVirtualMemory,
    .stream_pool = kStreamPool,
};

// The machine of a report about which process sees which device.
const DeviceProfile kFour2080Ti = [] {
  DeviceProfile profile = kRtx2080Ti;
  profile.name = "four-2080ti";
  profile.gpus = 4;
  return profile;
}();

// Measured with driver 580, CUDA 13.0, cuBLAS 13.1 and cuDNN 9.14. Lazily loaded kernels were below what
// cudaMemGetInfo resolves. cublasCreate failed with 64 MiB left and succeeded with 100; cudnnCreate with 9
// and 17.
const DeviceProfile kH200 = {
    .name = "h200",
    .description = "NVIDIA H200",
    .model = "NVIDIA H200",
    .compute_capability = 90,
    .total_bytes = 143156 * kMiB,
    .others_bytes = 0,
    .context_bytes = 527 * kMiB,
    .own_module_bytes = 0,
    .blas = {.handle_bytes = 64 * kMiB,
             .needed_bytes = 100 * kMiB,
             .module_bytes = 0,
             .failure_status = "CUBLAS_STATUS_ALLOC_FAILED"},
    .dnn = {.handle_bytes = 12 * kMiB,
            .needed_bytes = 17 * kMiB,
            .module_bytes = 0,
            .failure_status = "CUDNN_STATUS_INTERNAL_ERROR"},
    .granularity_bytes = kPage,
    .driver_call_us = kCallUs,
    .small_driver_call_us = kSmallCallUs,
    .virtual_memory = kVirtualMemory,
    .stream_pool = kStreamPool,
};

const DeviceProfile kProfiles[] = {
    kLaptop2Gb, kCard6Gb, kRtx2080Ti, kFour2080Ti, kH200,
};

}  // namespace

std::span<const DeviceProfile> device_profiles() {
  return kProfiles;
}

const DeviceProfile& find_profile(std::string_view name) {
  std::vector<std::string_view> known;
  for (const DeviceProfile& profile : kProfiles) {
    if (profile.name == name) return profile;
    known.push_back(profile.name);
  }
  throw InvalidArgument(
      fmt::format("unknown device profile '{}': known are {}", name, list_with_suggestion(name, known)));
}

}  // namespace headroom
