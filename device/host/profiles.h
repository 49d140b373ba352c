// A simulated GPU in plain numbers. A profile decides what the driver returns, never what a strategy does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/enum_names.h"
#include "device/device_libraries.h"
#include "device/host/host_stream_pool.h"
#include "device/host/host_virtual_memory.h"

namespace headroom {

// The bytes that a library takes on a device, and its status when it cannot start.
struct LibraryProfile {
  int64_t handle_bytes = 0;
  int64_t needed_bytes = 0;  // must be free for the handle to be made; at least handle_bytes
  int64_t module_bytes = 0;  // its kernels, loaded at the first use of any
  std::string failure_status;
};

// The origin of a profile's figure.
enum class FigureOrigin : uint8_t {
  kMeasured,   // by this project
  kPublished,  // printed by someone's driver or framework, or computed from what these printed
  kEstimated   // from other cards of the same architecture
};
constexpr auto value_names(FigureOrigin) {
  return std::to_array<std::string_view>({"measured", "published", "estimated"});
}

struct DeviceProfile {
  std::string name;
  std::string description;
  std::string model = {};      // as the driver names it; unknown when empty
  int gpus = 1;                // number of identical GPUs in the machine
  int compute_capability = 0;  // major * 10 + minor
  int64_t total_bytes = 0;     // as the driver reports it to programs: less than nvidia-smi's
  FigureOrigin total_origin = FigureOrigin::kPublished;
  int64_t others_bytes = 0;   // held by other processes
  int64_t context_bytes = 0;  // a new one's, as PyTorch and others keep it
  FigureOrigin context_origin = FigureOrigin::kEstimated;
  int64_t stack_bytes = 0;       // part of the context for thread stacks, which this runtime releases at once
  int64_t own_module_bytes = 0;  // kernels that belong to no library, loaded at the first use of any
  int64_t torch_kernel_bytes = 0;  // PyTorch's own, which it loads as it uses them; 0: part of context_bytes
  int64_t traced_bytes = 0;        // what libraries of a traced program take beside those of the profile
  LibraryProfile blas;
  LibraryProfile dnn;
  int64_t granularity_bytes = 0;
  int64_t page_bytes = 0;             // the smallest block of virtual memory; 0: granularity_bytes
  double driver_call_us = 0;          // one call that maps or unmaps pages
  double small_driver_call_us = 0;    // one that does not: a small allocation, a copy
  VirtualMemoryCosts virtual_memory;  // per call on a physical block
  StreamPoolCosts stream_pool;
  // Published peaks: products of matrices in TF32, or in f32 on cards without it, and memory traffic.
  double tflops = 0, memory_gb_per_s = 0;
  // Bandwidth of copies to and from page-locked host memory, each way; 0: unknown.
  double link_gb_per_s = 0;
  // The duration of work on the clock of the streams. With 0, as in all built-in profiles, work is done as
  // soon as it is queued.
  double kernel_us = 0;
  double copy_bytes_per_us = 0;

  // Returns the part of the context that a process of this runtime keeps.
  int64_t kept_context_bytes() const { return std::max<int64_t>(0, context_bytes - stack_bytes); }
  // Returns the memory of a library; for kNone, of the kernels that belong to no library.
  LibraryProfile library(Library library) const;
  // Returns the bytes of these libraries' handles and kernels.
  int64_t bytes_of(std::span<const Library> libraries) const;
  // Context, handles and all kernels together.
  int64_t overhead_bytes() const;
};

// All profiles, to be copied and changed at will.
std::span<const DeviceProfile> device_profiles();

// Returns the profile's own figure, or the approximate speed of PCI Express of the card's generation.
double link_gb_per_s(const DeviceProfile& profile);

// The profile of that name. Throws InvalidArgument listing the known ones, with the nearest as a suggestion.
const DeviceProfile& find_profile(std::string_view name);

// "; did you mean 'rtx-3090'?" for another spelling of a single card's name or model, such as "RTX 3090" or
// "3090"; of several such cards it names all. Empty for any other text.
std::string card_suggestion(std::string_view text);

// Returns a profile for a device of which only the total is known: the default machine's if the total
// matches, else the unused single card with the nearest total by ratio. Does not change the total.
const DeviceProfile& nearest_profile(int64_t total_bytes);

}  // namespace headroom
