// NVIDIA GPUs as devices, for code that must not include CUDA's headers. Also works in a build without CUDA.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"

namespace headroom {

struct CudaSettings {
  int ordinal = 0;        // among the visible GPUs
  std::string name = {};  // "/device:GPU:<ordinal>" when empty
  // Make the card behave as a smaller one, or as one that others use too: the rest is really held while the
  // device exists. With only a total, others hold nothing of it.
  std::optional<int64_t> total_bytes = {};
  std::optional<int64_t> others_bytes = {};
};

// Returns GPU `ordinal` among the visible ones, uninitialized, with no context yet. Throws InvalidArgument
// with the reason if there is none (no CUDA in this build, no driver, no such GPU), or if the card is too
// small.
std::unique_ptr<Device> make_cuda_device(const CudaSettings& settings);

// Returns the PCI bus ids of the GPUs that CUDA shows to this process (CUDA_VISIBLE_DEVICES), by ordinal.
// Makes no context. Throws InvalidArgument with the reason if there is none.
std::vector<std::string> visible_gpus();

// A process that holds memory of a GPU. In a container its id may be the host's.
struct GpuProcess {
  int64_t pid = 0;
  std::optional<int64_t> bytes;  // absent where the driver does not report them
};

// One GPU of the machine, visible or not.
struct PhysicalGpu {
  int index = 0;               // in the order of the PCI bus, as nvidia-smi counts
  std::optional<int> ordinal;  // CUDA's number; absent when CUDA hides it from this process
  std::string name, uuid, pci_bus_id;
  int compute_capability = 0;  // major * 10 + minor
  int64_t total_bytes = 0, used_bytes = 0, free_bytes = 0;
  std::optional<std::vector<GpuProcess>> processes;  // absent where the driver does not list them
};

struct GpuList {
  std::string driver_version;  // empty without a driver
  std::vector<PhysicalGpu> gpus;
  std::string problem;  // the reason that CUDA shows none of them; empty if it shows any

  // Returns the GPU with CUDA's number `ordinal`; null if there is none or no management library.
  const PhysicalGpu* find(int ordinal) const;
};

// All GPUs, also full ones. Makes no context, and throws nothing for a missing driver.
GpuList list_gpus();

}  // namespace headroom
