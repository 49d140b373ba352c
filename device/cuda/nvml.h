// The GPUs of the machine as NVIDIA's management library reports them: also hidden and full ones, and without
// a context. Needs no toolkit. Knows no CUDA.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/gpus.h"

namespace headroom::cuda {

class Nvml {
 public:
  using Gpu = void*;
  struct Memory {
    int64_t total = 0;  // as CUDA counts it: without what the driver keeps from everybody
    int64_t used = 0;
    int64_t free = 0;
  };

  // Returns null if the library is not installed or does not start.
  static const Nvml* instance();

  // All GPUs in the library's order, which is that of the PCI bus.
  std::vector<Gpu> gpus() const;
  // Returns null if there is no GPU at that place, "0000:3b:00.0".
  Gpu find(const std::string& pci_bus_id) const;

  std::string driver_version() const;
  std::string name(Gpu gpu) const;
  std::string uuid(Gpu gpu) const;
  std::string pci_bus_id(Gpu gpu) const;  // "00000000:3B:00.0"
  int compute_capability(Gpu gpu) const;  // major * 10 + minor
  std::optional<Memory> memory(Gpu gpu) const;
  // Returns the memory that this process uses on the GPU; nullopt if the library cannot tell (in some
  // containers, on some systems).
  std::optional<int64_t> own_bytes(Gpu gpu) const;
  // Returns all processes that compute or draw on the GPU, each once; nullopt if the library cannot tell.
  std::optional<std::vector<GpuProcess>> processes(Gpu gpu) const;

 private:
  Nvml();
  struct Functions;
  const Functions* functions_ = nullptr;
};

// Returns true if both texts name the same place on the PCI bus: domains have four or eight digits, in upper
// or lower case.
bool same_pci_bus_id(std::string_view a, std::string_view b);

}  // namespace headroom::cuda
