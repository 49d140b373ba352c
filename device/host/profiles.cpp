#include "device/host/profiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/text.h"

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
    .tflops = 1.1,
    .memory_gb_per_s = 48,
};

// From a report of PyTorch on such a card: a first small tensor shows 448 = 446 + 2 MiB, so kernels of its
// own count to the context; others use 931.56 = 6144 - 446 - 5 x 916 - 186.44. The report does not name the
// model (compute capability 7.5 is the RTX 2060's) or the handles, which are the H200's.
const DeviceProfile kCard6Gb = {
    .name = "card-6gb",
    .description = "desktop card of 6 GiB in use by others",
    .compute_capability = 75,
    .total_bytes = 6144 * kMiB,
    .others_bytes = 931 * kMiB + 576 * kKiB,
    .context_bytes = 446 * kMiB,
    .context_origin = FigureOrigin::kPublished,
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
    .tflops = 6.5,
    .memory_gb_per_s = 336,
};

// A report of four of these cards gives only the total; the costs are those of the 2 GB laptop, which ran the
// same software.
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
    .tflops = 13.4,
    .memory_gb_per_s = 616,
};

// The machine of a report about which process sees which device.
const DeviceProfile kFour2080Ti = [] {
  DeviceProfile profile = kRtx2080Ti;
  profile.name = "four-2080ti";
  profile.gpus = 4;
  return profile;
}();

// Measured with driver 580, CUDA 13.0, cuBLAS 13.1 and cuDNN 9.14. Lazily loaded kernels were below the
// resolution of cudaMemGetInfo. cublasCreate failed with 64 MiB left and succeeded with 100; cudnnCreate with
// 9 and 17. Stacks of 1 KiB for 132 x 2048 threads, as measured on an H100, which has the same chip.
// PyTorch's kernels: of ten programs on an H200, what the driver gave beside context, libraries and PyTorch's
// segments.
const DeviceProfile kH200 = {
    .name = "h200",
    .description = "NVIDIA H200",
    .model = "NVIDIA H200",
    .compute_capability = 90,
    .total_bytes = 143156 * kMiB,
    .total_origin = FigureOrigin::kMeasured,
    .others_bytes = 0,
    .context_bytes = 527 * kMiB,
    .context_origin = FigureOrigin::kMeasured,
    .stack_bytes = 264 * kMiB,
    .own_module_bytes = 0,
    .torch_kernel_bytes = 104 * kMiB,
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
    .tflops = 494,
    .memory_gb_per_s = 4800,
};

// Cards with the figures that programs print for them on Linux.
//
// Totals: deviceQuery, PyTorch's errors ("total capacity of 23.69 GiB") and llama.cpp ("VRAM: 11866 MiB").
// Drivers differ by up to 1 %; if several are known, this is a recent one.
//
// Contexts: PyTorch's errors state the memory of the process and the part that its allocator holds. The rest,
// minus the 76 MiB that the handles of cuBLAS and cuDNN use on an H200, is the context. The smallest known
// figure of a card counts, because other libraries add to it. Driver and kernels reserve stacks for all
// threads that a card can run, so unknown cards get 3.5 MiB for each multiprocessor minus 50 MiB, which is
// within 35 MiB of the known cards of these architectures (8.6, 8.9, 12.0). H100: the H200's, which has the
// same chip.
struct Card {
  const char* name;
  const char* model;
  int compute_capability;
  int64_t total_bytes;
  int64_t context_mib;
  FigureOrigin context_origin;
  double tflops, memory_gb_per_s;
};
constexpr auto kPublished = FigureOrigin::kPublished, kEstimated = FigureOrigin::kEstimated;
constexpr Card kCards[] = {
    {"t4", "Tesla T4", 75, 15095 * kMiB, 100, kPublished, 8.1, 320},
    {"v100-16gb", "Tesla V100-SXM2-16GB", 70, 16'928'342'016, 308, kPublished, 15.7, 900},
    {"v100-32gb", "Tesla V100-SXM2-32GB", 70, 32492 * kMiB, 308, kPublished, 15.7, 900},
    {"rtx-2060", "GeForce RTX 2060", 75, 6'222'839'808, 100, kEstimated, 6.5, 336},
    {"rtx-3060", "NVIDIA GeForce RTX 3060", 86, 12'587'106'304, 48, kEstimated, 12.7, 360},
    {"rtx-3070", "NVIDIA GeForce RTX 3070", 86, 8'361'213'952, 103, kPublished, 20.3, 448},
    {"rtx-3080", "NVIDIA GeForce RTX 3080", 86, 10'472'390'656, 188, kEstimated, 29.8, 760},
    {"rtx-3090", "NVIDIA GeForce RTX 3090", 86, 25'443'893'248, 231, kPublished, 35.6, 936},
    {"rtx-4060", "NVIDIA GeForce RTX 4060", 89, 7813 * kMiB, 34, kPublished, 15.1, 272},
    {"rtx-4070", "NVIDIA GeForce RTX 4070", 89, 11866 * kMiB, 111, kEstimated, 29.1, 504},
    {"rtx-4080", "NVIDIA GeForce RTX 4080", 89, 15945 * kMiB, 216, kEstimated, 48.7, 717},
    {"rtx-4090", "NVIDIA GeForce RTX 4090", 89, 25'386'352'640, 427, kPublished, 82.6, 1008},
    {"rtx-5090", "NVIDIA GeForce RTX 5090", 120, 33'660'534'784, 519, kPublished, 104.8, 1792},
    {"rtx-a6000", "NVIDIA RTX A6000", 86, 48676 * kMiB, 244, kEstimated, 77.4, 768},
    {"a10", "NVIDIA A10", 86, 23'609'475'072, 202, kEstimated, 62.5, 600},
    {"a100-40gb", "NVIDIA A100-PCIE-40GB", 80, 42'298'834'944, 415, kPublished, 156, 1555},
    {"a100-80gb", "NVIDIA A100-SXM4-80GB", 80, 84'987'740'160, 415, kPublished, 156, 2039},
    {"l4", "NVIDIA L4", 89, 23'612'293'120, 153, kEstimated, 60, 300},
    {"l40s", "NVIDIA L40S", 89, 47'576'711'168, 448, kPublished, 183, 864},
    {"h100", "NVIDIA H100 80GB HBM3", 90, 85'017'755'648, 527, kEstimated, 494, 3350},
};

bool is_hopper(const Card& card) {
  return card.compute_capability == kH200.compute_capability;
}

// Pages, costs and libraries are those measured on the H200.
DeviceProfile profile_of(const Card& card) {
  DeviceProfile profile = kH200;
  profile.name = card.name;
  profile.description = profile.model = card.model;
  profile.compute_capability = card.compute_capability;
  profile.total_bytes = card.total_bytes;
  profile.total_origin = kPublished;
  profile.context_bytes = card.context_mib * kMiB;
  profile.context_origin = card.context_origin;
  if (!is_hopper(card)) profile.stack_bytes = profile.torch_kernel_bytes = 0;  // not measured
  profile.tflops = card.tflops;
  profile.memory_gb_per_s = card.memory_gb_per_s;
  return profile;
}

const std::vector<DeviceProfile>& profiles() {
  static const std::vector<DeviceProfile> all = [] {
    std::vector<DeviceProfile> result = {kLaptop2Gb, kCard6Gb, kRtx2080Ti, kFour2080Ti, kH200};
    for (const Card& card : kCards) result.push_back(profile_of(card));
    return result;
  }();
  return all;
}

}  // namespace

std::span<const DeviceProfile> device_profiles() {
  return profiles();
}

LibraryProfile DeviceProfile::library(Library library) const {
  return library == Library::kBlas  ? blas
         : library == Library::kDnn ? dnn
                                    : LibraryProfile{.module_bytes = own_module_bytes, .failure_status = {}};
}

int64_t DeviceProfile::bytes_of(std::span<const Library> libraries) const {
  int64_t bytes = 0;
  for (const Library one : libraries) bytes += library(one).handle_bytes + library(one).module_bytes;
  return bytes;
}

int64_t DeviceProfile::overhead_bytes() const {
  return context_bytes + traced_bytes + bytes_of(std::array{Library::kNone, Library::kBlas, Library::kDnn});
}

double link_gb_per_s(const DeviceProfile& profile) {
  if (profile.link_gb_per_s > 0) return profile.link_gb_per_s;
  return profile.compute_capability >= 90 ? 50 : profile.compute_capability >= 80 ? 24 : 12;
}

const DeviceProfile& find_profile(std::string_view name) {
  std::vector<std::string_view> known;
  for (const DeviceProfile& profile : profiles()) {
    if (profile.name == name) return profile;
    known.push_back(profile.name);
  }
  throw InvalidArgument(
      fmt::format("unknown device profile '{}': known are {}", name, list_with_suggestion(name, known)));
}

std::string card_suggestion(std::string_view text) {
  const auto plain = [](std::string_view name) {
    std::string letters;
    for (const char c : name) {
      if (std::isalnum(static_cast<unsigned char>(c)) == 0) continue;
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return letters;
  };
  const std::string wanted = plain(text);
  constexpr size_t kLeast = 2;  // "t4"
  constexpr int kMost = 3;      // a part shared by more cards is not a name
  std::string cards;
  int count = 0;
  for (const DeviceProfile& profile : profiles()) {
    if (profile.gpus > 1 || profile.others_bytes > 0 || wanted.size() < kLeast) continue;
    const std::string name = plain(profile.name), model = plain(profile.model);
    const bool is_meant = name.starts_with(wanted) || name.ends_with(wanted) || model.starts_with(wanted) ||
                          model.ends_with(wanted);
    if (is_meant && ++count <= kMost) {
      cards += fmt::format("{}'{}'", cards.empty() ? "" : " or ", profile.name);
    }
  }
  return count == 0 || count > kMost ? "" : fmt::format("; did you mean {}?", cards);
}

const DeviceProfile& nearest_profile(int64_t total_bytes) {
  const auto distance = [&](const DeviceProfile& profile) {
    return std::abs(std::log(static_cast<double>(std::max<int64_t>(total_bytes, 1)) /
                             static_cast<double>(profile.total_bytes)));
  };
  const DeviceProfile& machine = profiles().front();
  if (machine.total_bytes == total_bytes) return machine;
  const DeviceProfile* nearest = nullptr;
  for (const DeviceProfile& profile : profiles()) {
    const bool is_free_card = profile.gpus == 1 && profile.others_bytes == 0;
    if (!is_free_card) continue;
    if (nearest == nullptr || distance(profile) < distance(*nearest)) nearest = &profile;
  }
  return *nearest;
}

}  // namespace headroom
