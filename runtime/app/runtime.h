// The devices of a program, each with a memory strategy, made from options. The visible and virtual devices
// and the strategies can change until the first device is initialized. Knows no graph.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/code_place.h"
#include "runtime/app/device_map.h"
#include "runtime/app/options.h"
#include "runtime/app/setup.h"

namespace headroom {

// Returns the file next to `path` for another device or rank: "run.gpu1.trace" for "run.trace". Empty for an
// empty path.
std::string record_path_of(const std::string& path, std::string_view who);

class Runtime {
 public:
  // Throws InvalidArgument for an unknown device. Touches no device yet.
  explicit Runtime(const RuntimeOptions& options);

  const RuntimeOptions& options() const { return options_; }
  const StrategySettings& strategy() const { return strategy_; }
  // Returns the GPUs and their names; empty if the options name the CPU.
  const DeviceMap& devices() const { return map_; }

  // The names of all devices: the default one first, then all GPUs, then the CPU.
  std::vector<DeviceName> available_devices() const;
  // Sets the device of device() and allocator() without a name, and of nodes that name none, like PyTorch's
  // torch.cuda.set_device. Hides no device, and can be called at any time. Throws InvalidArgument for an
  // unknown device.
  void set_current_device(std::string_view name);
  DeviceName current_device() const { return current_; }

  // These throw InvalidArgument once a device is initialized, naming the line of code that did it, and as
  // make_device_map does, with nothing changed. Numbers of GPUs are CUDA's.
  void set_strategy(const StrategySettings& strategy);
  void set_memory_growth(bool allow_growth);
  // On one GPU. All visible GPUs must agree when the first device is initialized, unless there are virtual
  // devices. Throws InvalidArgument for an unknown GPU, or one with virtual devices.
  void set_memory_growth(int gpu, bool allow_growth);
  // These GPUs become /GPU:0, /GPU:1, ... in this order; no others can be used.
  void set_visible_devices(std::span<const int> gpus);
  // Replaces the GPU by one device for each limit; no limits make it whole again.
  void set_virtual_devices(int gpu, std::span<const int64_t> limits_bytes);

  // A device and its strategy, by a name that parse_device_name takes; without a name the current device, at
  // first the one of the options. The first call initializes it. Virtual devices of one GPU are the same
  // Device with strategies of their own. Safe to call from several threads. Throw InvalidArgument for an
  // unknown device, listing the known ones, and as make_allocator does.
  Device& device(CodePlace place = CodePlace::here());
  Device& device(std::string_view name, CodePlace place = CodePlace::here());
  Allocator& allocator(CodePlace place = CodePlace::here());
  Allocator& allocator(std::string_view name, CodePlace place = CodePlace::here());
  // Declares the libraries that a program uses on the device of that name, kNone for kernels that belong to
  // none: a limit on the process then leaves room only for these. Call it before the device is initialized.
  // Throws InvalidArgument for an unknown device.
  void expect_libraries(std::string_view name, std::span<const Library> libraries);
  bool initialized() const { return !initialized_by_.empty(); }
  // The driver's figures for the device of the options, also when its initialization failed half-way.
  MemoryInfo memory_info() const { return default_device_->memory().info(); }
  // Returns the memory of the device of that name. Throws InvalidArgument for an unknown one.
  MemoryInfo memory_info(std::string_view name);
  // The options and the machine, with the driver's present figures for the devices in use.
  RunSetup setup() const;
  // Returns the statistics of that device's strategy; all zero before it is initialized.
  Statistics statistics(std::string_view name) const;

 private:
  struct Logical {
    Device* device = nullptr;
    std::unique_ptr<Allocator> allocator = {};
  };

  void use(DeviceMap map);
  Device& made(const DeviceName& name);
  Logical& ready(const DeviceName& name, const CodePlace& place);
  StrategySettings strategy_of(const DeviceName& name) const;
  bool grows(const LogicalGpu& gpu) const;
  void require_equal_growth() const;
  void require_not_initialized(const char* what) const;

  RuntimeOptions options_;
  StrategySettings strategy_;
  std::optional<std::vector<int>> visible_;
  std::vector<GpuSizes> virtual_;
  std::map<int, bool> growth_;  // by CUDA's number of a GPU, where it was set for one
  DeviceMap map_;
  std::map<int, std::unique_ptr<Device>> devices_;  // by position in the map; the CPU has kCpu
  std::map<std::string, Logical> logical_;          // by text(); goes before the devices
  DeviceName current_;
  Device* default_device_ = nullptr;
  std::string initialized_by_;
  mutable std::mutex mutex_;  // guards everything made at the first use
};

}  // namespace headroom
