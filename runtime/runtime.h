// One device with one memory strategy, made from settings. Settings are free until the device is initialised
// and fixed from then on. Knows no graph.
#pragma once

#include <memory>
#include <optional>
#include <source_location>
#include <string>

#include "allocators/strategy.h"
#include "runtime/core/device.h"

namespace headroom {

struct RuntimeSettings {
  std::string device = "sim";  // "cpu", "sim" (the documents' 2 GB laptop) or "sim:PROFILE"
  StrategySettings strategy;
  // What the device has, and what others hold of it, instead of the profile's numbers.
  std::optional<int64_t> device_memory_bytes;
  std::optional<int64_t> others_bytes;
};

class Runtime {
 public:
  // Throws InvalidArgument for an unknown device. Touches no device yet.
  explicit Runtime(RuntimeSettings settings);

  const RuntimeSettings& settings() const { return settings_; }
  // Throw InvalidArgument once the device is initialised, naming the line of code that initialised it.
  void set_strategy(const StrategySettings& strategy);
  void set_memory_growth(bool allow_growth);

  // The device and its strategy; the first call of either initialises both and throws what make_allocator
  // throws.
  Device& device(std::source_location caller = std::source_location::current());
  Allocator& allocator(std::source_location caller = std::source_location::current());
  bool initialised() const { return allocator_ != nullptr; }

 private:
  void initialise(const std::source_location& caller);
  void require_not_initialised(const char* what) const;

  RuntimeSettings settings_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Allocator> allocator_;
  std::string initialised_by_;
};

}  // namespace headroom
