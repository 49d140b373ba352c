#include "runtime/app/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/errors.h"
#include "runtime/session/start_op.h"

namespace headroom {
namespace {

constexpr int kCpu = -1;  // in place of the position of a GPU

}  // namespace

std::string record_path_of(const std::string& path, std::string_view who) {
  if (path.empty()) return path;
  const std::filesystem::path whole(path);
  const std::string file = whole.filename().string();
  const size_t dot = std::min(file.find('.'), file.size());
  return whole.parent_path() / fmt::format("{}.{}{}", file.substr(0, dot), who, file.substr(dot));
}

Runtime::Runtime(const RuntimeOptions& options) : options_(options), strategy_(options.strategy_settings()) {
  if (!options.visible_devices.empty()) {
    visible_ = parse_gpu_numbers(options.visible_devices, "visible-devices");
  }
  virtual_ = parse_gpu_sizes(options.virtual_devices, "virtual-devices");
  use(find_devices(options_, visible_, virtual_));
}

// All errors are thrown before anything is changed.
void Runtime::use(DeviceMap map) {
  const DeviceName name = default_device(options_);
  const int physical = name.type == DeviceType::kCpu ? kCpu : map.find(name).physical;
  strategy_on(map, name, strategy_);
  std::unique_ptr<Device> device = physical == kCpu ? make_cpu(options_) : make_gpu(options_, map, physical);
  map_ = std::move(map);
  current_ = name;
  logical_.clear();
  devices_.clear();
  default_device_ = (devices_[physical] = std::move(device)).get();
  settle_strategy(options_, *default_device_);
  if (!options_.strategy_is_given) strategy_.name = options_.strategy_settings().name;
}

void Runtime::require_not_initialized(const char* what) const {
  if (!initialized()) return;
  throw InvalidArgument(fmt::format("{} must be set before {} is initialized; it was initialized by {}", what,
                                    default_device_->name(), initialized_by_));
}

std::vector<DeviceName> Runtime::available_devices() const {
  return headroom::available_devices(map_, current_);
}

void Runtime::set_current_device(std::string_view name) {
  const DeviceName wanted = parse_device_name(name);
  const std::vector<DeviceName> names = available_devices();
  if (std::ranges::find(names, wanted) == names.end()) {
    try {
      map_.find(wanted);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("CUDA error: invalid device ordinal: {}", error.what()));
    }
  }
  current_ = wanted;
}

void Runtime::set_strategy(const StrategySettings& strategy) {
  require_not_initialized("the memory strategy");
  strategy_ = strategy;
  options_.strategy_is_given = true;
}

void Runtime::set_memory_growth(bool allow_growth) {
  require_not_initialized("memory growth");
  strategy_.allow_growth = allow_growth;
  growth_.clear();
}

void Runtime::set_memory_growth(int gpu, bool allow_growth) {
  require_not_initialized("memory growth");
  if (std::ranges::any_of(virtual_, [&](const GpuSizes& sizes) { return sizes.gpu == gpu; })) {
    throw InvalidArgument(fmt::format(
        "Cannot set memory growth on device when virtual devices configured: GPU {} has some", gpu));
  }
  if (std::ranges::none_of(map_.physical,
                           [&](const PhysicalGpu& physical) { return physical.ordinal == gpu; })) {
    throw InvalidArgument(fmt::format("memory growth of GPU {}: there is no such GPU", gpu));
  }
  growth_[gpu] = allow_growth;
}

void Runtime::set_visible_devices(std::span<const int> gpus) {
  require_not_initialized("visible devices");
  std::vector<int> visible(gpus.begin(), gpus.end());
  use(find_devices(options_, visible, virtual_));
  visible_ = std::move(visible);
}

void Runtime::set_virtual_devices(int gpu, std::span<const int64_t> limits_bytes) {
  require_not_initialized("virtual devices");
  std::vector<GpuSizes> sizes = virtual_;
  std::erase_if(sizes, [&](const GpuSizes& other) { return other.gpu == gpu; });
  if (!limits_bytes.empty()) sizes.push_back({gpu, {limits_bytes.begin(), limits_bytes.end()}});
  use(find_devices(options_, visible_, sizes));
  virtual_ = std::move(sizes);
}

bool Runtime::grows(const LogicalGpu& gpu) const {
  const auto found = growth_.find(*map_.physical[static_cast<size_t>(gpu.physical)].ordinal);
  return found != growth_.end() ? found->second : strategy_.allow_growth;
}

// TensorFlow's rule: virtual devices have limits in its place.
void Runtime::require_equal_growth() const {
  if (map_.has_virtual()) return;
  for (const LogicalGpu& gpu : map_.logical) {
    if (grows(gpu) == grows(map_.logical.front())) continue;
    const auto number = [&](const LogicalGpu& one) {
      return *map_.physical[static_cast<size_t>(one.physical)].ordinal;
    };
    throw InvalidArgument(
        fmt::format("Memory growth cannot differ between GPU devices: it is {} on GPU {} and {} on GPU {}",
                    grows(map_.logical.front()), number(map_.logical.front()), grows(gpu), number(gpu)));
  }
}

StrategySettings Runtime::strategy_of(const DeviceName& name) const {
  const bool is_default = name == default_device(options_);
  if (name.type == DeviceType::kCpu)
    return is_default ? strategy_ : StrategySettings{.name = kGrowingStrategy};
  const LogicalGpu& gpu = map_.find(name);
  StrategySettings strategy = strategy_on(map_, name, strategy_);
  strategy.allow_growth = grows(gpu);
  if (!is_default) {
    const char* type = name.type == DeviceType::kCpu ? "cpu" : "gpu";
    strategy.record_path = record_path_of(strategy.record_path, fmt::format("{}{}", type, name.ordinal));
  }
  return strategy;
}

Device& Runtime::made(const DeviceName& name) {
  const bool is_cpu = name == DeviceName{DeviceType::kCpu, 0};
  const int physical = is_cpu ? kCpu : map_.find(name).physical;
  std::unique_ptr<Device>& device = devices_[physical];
  if (device == nullptr) {
    if (is_cpu) {
      device = make_cpu(options_);
    } else {
      device = make_gpu(options_, map_, physical);
    }
  }
  return *device;
}

Runtime::Logical& Runtime::ready(const DeviceName& name, const CodePlace& place) {
  const std::lock_guard lock(mutex_);
  Device& device = made(name);
  Logical& logical = logical_[name.text()];
  if (logical.allocator != nullptr) return logical;
  require_equal_growth();
  StrategySettings strategy = strategy_of(name);
  RuntimeOptions settled = options_;
  settle_strategy(settled, device);
  if (settled.strategy != options_.strategy) strategy.name = settled.strategy;
  if (options_.libraries_first && name.type == DeviceType::kGpu) {
    strategy.reserve_bytes = start_libraries(device);
  }
  logical.allocator = make_allocator(strategy, device);
  // If there are several devices, an error names the one that is full.
  if (map_.logical.size() > 1) logical.allocator->set_device_name(name.text());
  logical.device = &device;
  if (!initialized()) initialized_by_ = place.text();
  return logical;
}

void Runtime::expect_libraries(std::string_view name, std::span<const Library> libraries) {
  const std::lock_guard lock(mutex_);
  made(parse_device_name(name)).libraries().expect(libraries);
}

MemoryInfo Runtime::memory_info(std::string_view name) {
  const std::lock_guard lock(mutex_);
  return made(parse_device_name(name)).memory().info();
}

RunSetup Runtime::setup() const {
  const std::lock_guard lock(mutex_);
  RunSetup setup = setup_of(options_, map_);
  for (const auto& [physical, device] : devices_) {
    const MemoryInfo info = device->memory().info();
    if (physical != kCpu) setup.gpus.physical[static_cast<size_t>(physical)].used_bytes = info.others;
    // One that is real has the total that its driver says, a simulated one that of the options.
    if (device.get() != default_device_ || simulated_profile(options_)) continue;
    if (physical == kCpu) setup.device.others_bytes = info.others;
    setup.device.total_bytes = info.total;
  }
  return setup;
}

Statistics Runtime::statistics(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = logical_.find(parse_device_name(name).text());
  const bool is_ready = found != logical_.end() && found->second.allocator != nullptr;
  return is_ready ? found->second.allocator->statistics() : Statistics{};
}

Device& Runtime::device(CodePlace place) {
  return *ready(current_, place).device;
}

Device& Runtime::device(std::string_view name, CodePlace place) {
  return *ready(parse_device_name(name), place).device;
}

Allocator& Runtime::allocator(CodePlace place) {
  return *ready(current_, place).allocator;
}

Allocator& Runtime::allocator(std::string_view name, CodePlace place) {
  return *ready(parse_device_name(name), place).allocator;
}

}  // namespace headroom
