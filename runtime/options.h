// The settings that all programs share: device, memory strategy, plan and seed. Knows no command line syntax.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocators/strategy.h"
#include "runtime/core/device.h"
#include "runtime/core/sim/profiles.h"
#include "runtime/option_set.h"
#include "runtime/plan.h"

namespace headroom {

struct RuntimeOptions {
  std::string device = "cpu";             // "cpu", "sim", "sim:PROFILE", "cuda" or "cuda:N"
  std::string strategy = "allow-growth";  // see parse_strategy
  std::optional<int64_t> limit_bytes = {};
  std::string limit_scope = "pool";  // or "process"
  std::optional<double> memory_fraction = {};
  bool allow_growth = false;
  bool libraries_first = false;  // start the libraries before the strategy takes memory
  std::string plan = "dynamic";  // or "packed", "parallel"
  int64_t seed = 1;
  std::string record = {};  // where what is asked of the strategy is written; nowhere when empty

  // What a simulated GPU's profile is changed to. On a real one the first two are held for real.
  std::optional<int64_t> device_memory_bytes = {};
  std::optional<int64_t> others_bytes = {};
  std::optional<int64_t> context_bytes = {};

  // Throws InvalidArgument for a strategy that is malformed or contradicts the options beside it.
  StrategySettings strategy_settings() const;
  PlanMode plan_mode() const;
};

// Adds one option for each field, which `options` (with its defaults) receives when `set` parses. With
// `strategies` the option of that name takes any number, which go there.
void add_runtime_options(OptionSet& set, RuntimeOptions& options,
                         std::vector<std::string>* strategies = nullptr);

// "cpu", "sim", "sim:laptop-2gb", ..., "cuda", "cuda:0"; any other number of a GPU will do, too.
std::vector<std::string> device_names();
// The N of "cuda:N", 0 of "cuda"; nothing for any other text.
std::optional<int> cuda_ordinal(std::string_view device);
// The simulated GPU that the options name, changed as they say; nothing for any other device. Throws
// InvalidArgument for an unknown profile.
std::optional<DeviceProfile> simulated_profile(const RuntimeOptions& options);

// The device that the options name, not initialised. Throws InvalidArgument for an unknown one (with the
// nearest known as a suggestion), for a GPU that is not there, and for memory that the device cannot have.
std::unique_ptr<Device> make_device(const RuntimeOptions& options);

}  // namespace headroom
