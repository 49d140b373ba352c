// One device with one memory strategy, made from options. The strategy can change until the device is
// initialised and is fixed from then on. Knows no graph.
#pragma once

#include <memory>
#include <string>

#include "runtime/options.h"

namespace headroom {

class Runtime {
 public:
  // Throws InvalidArgument for an unknown device. Touches no device yet.
  explicit Runtime(const RuntimeOptions& options);

  const RuntimeOptions& options() const { return options_; }
  const StrategySettings& strategy() const { return strategy_; }
  // Throw InvalidArgument once the device is initialised, naming the line of code that initialised it.
  void set_strategy(const StrategySettings& strategy);
  void set_memory_growth(bool allow_growth);

  // The device and its strategy; the first call of either initialises both and throws what make_allocator
  // throws.
  // The parameters are the caller's place; std::source_location is missing from clang 14.
  Device& device(const char* file = __builtin_FILE(), int line = __builtin_LINE());
  Allocator& allocator(const char* file = __builtin_FILE(), int line = __builtin_LINE());
  bool initialised() const { return allocator_ != nullptr; }
  // What the driver says of the device's memory, also when initialising failed half-way.
  MemoryInfo memory_info() const { return device_->memory().info(); }

 private:
  void initialise(const char* file, int line);
  void require_not_initialised(const char* what) const;

  RuntimeOptions options_;
  StrategySettings strategy_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Allocator> allocator_;
  std::string initialised_by_;
};

}  // namespace headroom
