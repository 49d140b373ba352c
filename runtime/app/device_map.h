// Physical, visible and logical GPUs: which GPUs of a machine a program sees, into how many devices each is
// split, and their names. Pure data; knows no driver, and of strategies only their settings.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allocators/strategies/strategy.h"
#include "device/device_name.h"
#include "device/gpus.h"
#include "device/host/profiles.h"

namespace headroom {

// Sizes for one GPU: limits of its virtual devices, or the bytes of other processes.
struct GpuSizes {
  int gpu = 0;
  std::vector<int64_t> bytes;
  bool operator==(const GpuSizes&) const = default;
};

// Parse "0:1024MiB,1024MiB/1:2GiB", and "1,2" or "none" for no numbers. Throw InvalidArgument naming `what`
// for anything else, and for a duplicate GPU.
std::vector<GpuSizes> parse_gpu_sizes(std::string_view text, std::string_view what);
std::vector<int> parse_gpu_numbers(std::string_view text, std::string_view what);

// The text of such sizes.
std::string format_gpu_sizes(std::span<const GpuSizes> sizes);

// A GPU as the program names it: a visible one, or a virtual device on it.
struct LogicalGpu {
  int physical = 0;                         // position in DeviceMap::physical
  std::optional<int64_t> limit_bytes = {};  // for a virtual device alone
};

struct DeviceMap {
  std::vector<PhysicalGpu> physical;  // all of the machine, in the order of the PCI bus
  std::vector<int> visible;           // positions in `physical`, in the order of the names
  std::vector<LogicalGpu> logical;    // the n-th is /device:GPU:n
  std::string hidden_by = {};         // "CUDA_VISIBLE_DEVICES=1,2", "visible-devices=1,2", or empty

  // Returns the GPU of that name. Throws InvalidArgument listing the GPUs and the reason that others are
  // hidden.
  const LogicalGpu& find(const DeviceName& name) const;
  bool has_virtual() const;
};

// Makes the GPUs of these numbers visible (CUDA's, see PhysicalGpu::ordinal; nullopt: all that CUDA shows),
// and replaces each GPU of `virtual_limits` by virtual devices. Throws InvalidArgument for a GPU that is
// unknown, named twice or not visible, and for limits above the GPU's memory.
DeviceMap make_device_map(std::vector<PhysicalGpu> physical, const std::optional<std::vector<int>>& wanted,
                          std::span<const GpuSizes> virtual_limits);

// Returns the GPUs of the simulated machine of that profile, used only by other processes, with `others` for
// some GPUs. On a machine with several, `cuda_visible_devices` hides GPUs as CUDA's driver does: the numbers
// before the first invalid one are visible. A single GPU is always visible: a scheduler's variable for the
// host must not hide it.
std::vector<PhysicalGpu> simulated_gpus(const DeviceProfile& profile, std::span<const GpuSizes> others,
                                        const char* cuda_visible_devices);

// The names of all devices: `first`, then all other GPUs, then the CPU.
std::vector<DeviceName> available_devices(const DeviceMap& map, const DeviceName& first);

// `strategy` for the device of that name, with the limit of a virtual one. Throws as find does, and
// InvalidArgument when a fraction, a limit or a scope contradicts the limits of virtual devices.
StrategySettings strategy_on(const DeviceMap& map, const DeviceName& name, const StrategySettings& strategy);

// A line for each logical GPU, as in TensorFlow's log: "/device:GPU:0 -> device: 1, name: NVIDIA H200, pci
// bus id: 0000:3b:00.0, compute capability: 9.0". The device is the number on the machine.
std::vector<std::string> mapping_lines(const DeviceMap& map);
// "2 Physical GPU, 3 Logical GPUs", as in TensorFlow's guide. Physical GPUs are those that CUDA shows.
std::string count_line(const DeviceMap& map);

}  // namespace headroom
