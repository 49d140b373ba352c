#include "answers/machine.h"

#include <optional>

#include "base/errors.h"
#include "runtime/session/start_op.h"

namespace headroom {

Machine::Machine(const RunSetup& setup)
    : profile_(setup.device),
      map_(setup.gpus),
      first_(default_device(setup.options)),
      strategy_(setup.strategy ? *setup.strategy : setup.options.strategy_settings()),
      libraries_first_(setup.options.libraries_first) {
  strategy_.record_path.clear();  // a prediction records nothing
  std::map<int, int64_t> left;
  for (const LogicalGpu& gpu : map_.logical) {
    int64_t& room = left.try_emplace(gpu.physical, profile_.total_bytes).first->second;
    room -= gpu.limit_bytes.value_or(0);
    if (room < 0) throw InvalidArgument("limits of virtual devices are together above the GPU's total");
  }
}

int Machine::position_of(const std::string& name) const {
  const DeviceName device = parse_device_name(name);
  return map_.physical.empty() || device.type == DeviceType::kCpu ? kCpu : map_.find(device).physical;
}

DeviceProfile Machine::profile_at(int position) const {
  if (position == kCpu) return map_.physical.empty() ? profile_ : cpu_profile();
  DeviceProfile profile = profile_;
  profile.others_bytes = map_.physical[static_cast<size_t>(position)].used_bytes;
  return profile;
}

SimulatedGpu& Machine::gpu(const std::string& name) {
  const int position = position_of(name);
  std::unique_ptr<SimulatedGpu>& gpu = gpus_[position];
  if (gpu == nullptr) {
    const std::optional<int> ordinal =
        position == kCpu ? 0 : map_.physical[static_cast<size_t>(position)].ordinal;
    gpu = std::make_unique<SimulatedGpu>(profile_at(position), ordinal.value_or(0), Backing::kNone, name);
  }
  return *gpu;
}

PlacedDevice Machine::at(const std::string& name) {
  SimulatedGpu& gpu = this->gpu(name);
  std::unique_ptr<Allocator>& allocator = allocators_[name];
  if (allocator == nullptr) {
    const DeviceName device = parse_device_name(name);
    StrategySettings strategy{.name = "allow-growth"};  // for a CPU beside GPUs
    if (device == first_ || device.type == DeviceType::kGpu) strategy = strategy_on(map_, device, strategy_);
    if (libraries_first_ && position_of(name) != kCpu) strategy.reserve_bytes = start_library_handles(gpu);
    allocator = make_allocator(strategy, gpu);
    if (map_.logical.size() > 1) allocator->set_device_name(name);
  }
  return {name, &gpu, allocator.get()};
}

}  // namespace headroom
