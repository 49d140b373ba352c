#include "runtime/runtime.h"

#include <fmt/format.h>

#include "runtime/core/errors.h"
#include "runtime/start_libraries.h"

namespace headroom {

Runtime::Runtime(const RuntimeOptions& options)
    : options_(options), strategy_(options.strategy_settings()), device_(make_device(options)) {}

void Runtime::require_not_initialised(const char* what) const {
  if (!initialised()) return;
  throw InvalidArgument(fmt::format("{} must be set before {} is initialised; it was initialised by {}", what,
                                    device_->name(), initialised_by_));
}

void Runtime::set_strategy(const StrategySettings& strategy) {
  require_not_initialised("the memory strategy");
  strategy_ = strategy;
}

void Runtime::set_memory_growth(bool allow_growth) {
  require_not_initialised("memory growth");
  strategy_.allow_growth = allow_growth;
}

void Runtime::initialise(const char* file, int line) {
  if (initialised()) return;
  StrategySettings strategy = strategy_;
  if (options_.libraries_first && device_->kind() != DeviceKind::kCpu) {
    strategy.reserve_bytes = start_libraries(*device_);
  }
  allocator_ = make_allocator(strategy, *device_);
  initialised_by_ = fmt::format("{}:{}", file, line);
}

Device& Runtime::device(const char* file, int line) {
  initialise(file, line);
  return *device_;
}

Allocator& Runtime::allocator(const char* file, int line) {
  initialise(file, line);
  return *allocator_;
}

}  // namespace headroom
