#include "runtime/runtime.h"

#include <fmt/format.h>

#include "runtime/core/cpu/cpu_device.h"
#include "runtime/core/errors.h"
#include "runtime/core/sim/simulated_gpu.h"

namespace headroom {
namespace {

// The profile of "sim" alone: the machine on which the documents' run fails.
constexpr std::string_view kDefaultProfile = "laptop-2gb";

std::unique_ptr<Device> make_device(const RuntimeSettings& settings) {
  const std::string_view name = settings.device;
  if (name == "cpu") {
    if (settings.others_bytes)
      throw InvalidArgument("device cpu: what others hold can be set on a simulated GPU only");
    return std::make_unique<CpuDevice>(settings.device_memory_bytes);
  }
  if (name == "sim" || name.starts_with("sim:")) {
    DeviceProfile profile = find_profile(name == "sim" ? kDefaultProfile : name.substr(4));
    if (settings.device_memory_bytes) profile.total_bytes = *settings.device_memory_bytes;
    if (settings.others_bytes) profile.others_bytes = *settings.others_bytes;
    return std::make_unique<SimulatedGpu>(std::move(profile));
  }
  throw InvalidArgument(fmt::format("device '{}' is unknown; known are cpu, sim and sim:PROFILE", name));
}

}  // namespace

Runtime::Runtime(RuntimeSettings settings)
    : settings_(std::move(settings)), device_(make_device(settings_)) {}

void Runtime::require_not_initialised(const char* what) const {
  if (!initialised()) return;
  throw InvalidArgument(fmt::format("{} must be set before {} is initialised; it was initialised by {}", what,
                                    device_->name(), initialised_by_));
}

void Runtime::set_strategy(const StrategySettings& strategy) {
  require_not_initialised("the memory strategy");
  settings_.strategy = strategy;
}

void Runtime::set_memory_growth(bool allow_growth) {
  require_not_initialised("memory growth");
  settings_.strategy.allow_growth = allow_growth;
}

void Runtime::initialise(const std::source_location& caller) {
  if (initialised()) return;
  allocator_ = make_allocator(settings_.strategy, *device_);
  initialised_by_ = fmt::format("{}:{} in {}", caller.file_name(), caller.line(), caller.function_name());
}

Device& Runtime::device(std::source_location caller) {
  initialise(caller);
  return *device_;
}

Allocator& Runtime::allocator(std::source_location caller) {
  initialise(caller);
  return *allocator_;
}

}  // namespace headroom
