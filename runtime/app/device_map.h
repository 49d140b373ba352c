// Physical, visible and logical GPUs: which of a machine's a program sees, into how many each is cut, and
// what they are then called. Pure data; knows no driver and no memory strategy but for the settings of one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allocators/strategies/strategy.h"
#include "runtime/device/device_name.h"
#include "runtime/device/gpus.h"
#include "runtime/device/host/profiles.h"

namespace headroom {

// Sizes for one GPU: limits of the virtual devices on it, or what others hold of it.
struct GpuSizes {
  int gpu = 0;
  std::vector<int64_t> bytes;
  bool operator==(const GpuSizes&) const = default;
};

// "0:1024MiB,1024MiB/1:2GiB" and "1,2", or "none" for an empty list of numbers. Throw InvalidArgument naming
// `what` for anything else and for a GPU that stands there twice.
std::vector<GpuSizes> parse_gpu_sizes(std::string_view text, std::string_view what);
std::vector<int> parse_gpu_numbers(std::string_view text, std::string_view what);

// The text of such sizes.
std::string format_gpu_sizes(std::span<const GpuSizes> sizes);

// A GPU as the program names it: a visible one, or a virtual device on it.
struct LogicalGpu {
  int physical = 0;                         // position in DeviceMap::physical
  std::optional<int64_t> limit_bytes = {};  // of a virtual device alone
};

struct DeviceMap {
  std::vector<PhysicalGpu> physical;  // all of the machine, in the order of the PCI bus
  std::vector<int> visible;           // positions in `physical`, in the order of the names
  std::vector<LogicalGpu> logical;    // the n-th is /device:GPU:n
  std::string hidden_by = {};         // "CUDA_VISIBLE_DEVICES=1,2", "visible-devices=1,2"; empty: by nothing

  // The GPU of that name. Throws InvalidArgument saying which there are and why no others.
  const LogicalGpu& find(const DeviceName& name) const;
  bool has_virtual() const;
};

// What is visible of `physical` when only GPUs of these numbers (CUDA's, see PhysicalGpu::ordinal) are
// wanted, all that CUDA shows without them, and each GPU of `virtual_limits` replaced by as many virtual
// devices. Throws InvalidArgument for a GPU that is not there, is named twice or is not visible, and for
// limits that are more than the GPU has.
DeviceMap make_device_map(std::vector<PhysicalGpu> physical, const std::optional<std::vector<int>>& wanted,
                          std::span<const GpuSizes> virtual_limits);

// The simulated machine of that profile, `others` given apart for some of its GPUs, with nothing in use but
// by others. Where it has several, `cuda_visible_devices` hides some as CUDA's driver does: the numbers
// before the first that is none of them are visible. One alone is always visible: what a scheduler has set
// for the host must not hide it.
std::vector<PhysicalGpu> simulated_gpus(const DeviceProfile& profile, std::span<const GpuSizes> others,
                                        const char* cuda_visible_devices);

// By which names devices can be asked for: that one, then all other GPUs, then the CPU.
std::vector<DeviceName> available_devices(const DeviceMap& map, const DeviceName& first);

// `strategy` on the device of that name: with the limit of a virtual one. Throws what find throws, and
// InvalidArgument, where the map has virtual devices, for a fraction, a limit or a scope that contradict
// their limits.
StrategySettings strategy_on(const DeviceMap& map, const DeviceName& name, const StrategySettings& strategy);

// "/device:GPU:0 -> device: 1, name: NVIDIA H200, pci bus id: 0000:3b:00.0, compute capability: 9.0", a line
// for each logical GPU, as TensorFlow's log has them; the device is the number on the machine.
std::vector<std::string> mapping_lines(const DeviceMap& map);
// "2 Physical GPU, 3 Logical GPUs", as the examples of TensorFlow's guide print it: physical are those that
// CUDA shows.
std::string count_line(const DeviceMap& map);

}  // namespace headroom
