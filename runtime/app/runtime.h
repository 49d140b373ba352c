// The devices of a program, each with a memory strategy, made from options. What is visible, how GPUs are cut
// up and the strategies can change until the first device is initialised and are fixed from then on. Knows no
// graph.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/app/device_map.h"
#include "runtime/app/options.h"
#include "runtime/app/setup.h"
#include "runtime/base/code_place.h"

namespace headroom {

// Where beside `path` another device or rank records: "run.gpu1.trace" beside "run.trace". Empty for an empty
// path.
std::string record_path_of(const std::string& path, std::string_view who);

class Runtime {
 public:
  // Throws InvalidArgument for an unknown device. Touches no device yet.
  explicit Runtime(const RuntimeOptions& options);

  const RuntimeOptions& options() const { return options_; }
  const StrategySettings& strategy() const { return strategy_; }
  // The GPUs and their names; empty where the options name the CPU.
  const DeviceMap& devices() const { return map_; }

  // By which names devices can be asked for: the default one first, then all GPUs, then the CPU.
  std::vector<DeviceName> available_devices() const;
  // What device() and allocator() without a name mean from now on, and nodes of graphs that name no device:
  // PyTorch's torch.cuda.set_device. Hides no device, and can be called at any time. Throws InvalidArgument
  // for one that there is not.
  void set_current_device(std::string_view name);
  DeviceName current_device() const { return current_; }

  // The settings. All throw InvalidArgument once a device is initialised, naming the line of code that did
  // it, and, with nothing changed, for what make_device_map refuses. Numbers of GPUs are CUDA's.
  void set_strategy(const StrategySettings& strategy);
  void set_memory_growth(bool allow_growth);
  // On one GPU; those that are visible must agree when the first device is initialised, unless there are
  // virtual devices. Throws InvalidArgument for a GPU with virtual devices, or that is not there.
  void set_memory_growth(int gpu, bool allow_growth);
  // GPUs in this order become /GPU:0, /GPU:1, ...; no others can be used.
  void set_visible_devices(std::span<const int> gpus);
  // One device for each limit in place of the GPU; none of them make it whole again.
  void set_virtual_devices(int gpu, std::span<const int64_t> limits_bytes);

  // A device and its strategy, by a name that parse_device_name takes; without one the current device, which
  // the options name at first.
  // Each is initialised at the first call. Virtual devices of one GPU are the same Device with strategies of
  // their own. Threads may ask at the same time. Throw InvalidArgument for a device that there is not, saying
  // which there are, and what make_allocator throws.
  Device& device(CodePlace place = CodePlace::here());
  Device& device(std::string_view name, CodePlace place = CodePlace::here());
  Allocator& allocator(CodePlace place = CodePlace::here());
  Allocator& allocator(std::string_view name, CodePlace place = CodePlace::here());
  bool initialised() const { return !initialised_by_.empty(); }
  // What the driver says of the memory of the device that the options name, also when initialising failed
  // half-way.
  MemoryInfo memory_info() const { return default_device_->memory().info(); }
  // The same of the device of that name. Throws InvalidArgument for one that there is not.
  MemoryInfo memory_info(std::string_view name);
  // The options and the machine, with what the driver says now of the devices that are in use.
  RunSetup setup() const;
  // Of the strategy of that device; all zero where it is not initialised.
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
  void require_not_initialised(const char* what) const;

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
  std::string initialised_by_;
  mutable std::mutex mutex_;  // of what is made at the first use
};

}  // namespace headroom
