#include "runtime/options.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "allocators/strategy_text.h"
#include "runtime/core/errors.h"

namespace headroom {
namespace {

constexpr std::string_view kSimulated = "sim", kCuda = "cuda";

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Strategy& strategy : strategies()) names.emplace_back(strategy.name);
  return names;
}

// More than a name; what is wrong with it comes out when it is parsed.
bool is_composed(const std::string& strategy) {
  return strategy.find_first_of("=:+") != std::string::npos;
}

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names = {"cpu", std::string(kSimulated)};
  for (const DeviceProfile& profile : device_profiles())
    names.push_back(fmt::format("{}:{}", kSimulated, profile.name));
  names.insert(names.end(), {std::string(kCuda), fmt::format("{}:0", kCuda)});
  return names;
}

std::optional<int> cuda_ordinal(std::string_view name) {
  if (name == kCuda) return 0;
  const size_t start = kCuda.size() + 1;
  if (name.size() <= start || !name.starts_with(kCuda) || name[kCuda.size()] != ':') return std::nullopt;
  int ordinal = 0;
  const auto [end, error] = std::from_chars(name.data() + start, name.data() + name.size(), ordinal);
  if (error != std::errc() || end != name.data() + name.size() || name[start] == '-') return std::nullopt;
  return ordinal;
}

StrategySettings RuntimeOptions::strategy_settings() const {
  StrategySettings settings = parse_strategy(strategy);
  if (limit_bytes) {
    if (settings.limit_bytes) throw InvalidArgument("limit is given twice: in the strategy and as an option");
    settings.limit_bytes = limit_bytes;
  }
  if (memory_fraction) {
    if (settings.memory_fraction) {
      throw InvalidArgument("fraction is given twice: in the strategy and as an option");
    }
    settings.memory_fraction = memory_fraction;
  }
  if (!record.empty()) {
    if (!settings.record_path.empty())
      throw InvalidArgument("record is given twice: in the strategy and as an option");
    settings.record_path = record;
  }
  if (limit_scope == "process") settings.limit_scope = LimitScope::kProcess;
  settings.allow_growth = settings.allow_growth || allow_growth;
  return settings;
}

void add_runtime_options(OptionSet& set, RuntimeOptions& options, std::vector<std::string>* strategies) {
  set.add_choice("device", "Where to compute", &options.device, device_names(),
                 [](const std::string& name) { return cuda_ordinal(name).has_value(); });
  if (strategies != nullptr) {
    set.add_list("strategy", "Memory strategies, such as allow-growth or hard-limit=1GiB", strategies);
  } else {
    set.add_choice("strategy", "Memory strategy, such as allow-growth or hard-limit=1GiB", &options.strategy,
                   strategy_names(), is_composed);
  }
  set.add_bytes("limit", "Most that the strategy may hold", &options.limit_bytes);
  set.add_choice("limit-scope", "What the limit counts: the pool, or context and libraries too",
                 &options.limit_scope, {"pool", "process"});
  set.add_number("memory-fraction", "Share of the device's memory for the pool, in place of a limit",
                 &options.memory_fraction, 0, 1);
  set.add_switch("allow-growth", "Let the pool grow with demand", &options.allow_growth);
  set.add_override("allow-growth", "TF_FORCE_GPU_ALLOW_GROWTH");
  set.add_switch("libraries-first",
                 "Start cuBLAS and cuDNN before the pool, which then leaves them what was measured",
                 &options.libraries_first);
  set.add_choice(
      "plan", "Allocate value by value, pack all into one arena, or pack without ordering parallel branches",
      &options.plan, {"dynamic", "packed", "parallel"});
  set.add_integer("seed", "Seed of weights, order and dropout", &options.seed, 0);
  set.add_text("record", "Write all that is asked of the strategy to this file, for headroom report",
               &options.record);
  set.add_bytes("device-memory",
                "Total memory of the GPU: of a simulated one, or of a real one whose rest is held",
                &options.device_memory_bytes);
  set.add_bytes("others", "Memory of the GPU that other processes hold: simulated, or held in their place",
                &options.others_bytes);
  set.add_bytes("context", "Memory that the simulated GPU's context takes", &options.context_bytes);
}

PlanMode RuntimeOptions::plan_mode() const {
  for (PlanMode mode : {PlanMode::kPacked, PlanMode::kParallel}) {
    if (plan == to_string(mode)) return mode;
  }
  return PlanMode::kDynamic;
}

std::optional<DeviceProfile> simulated_profile(const RuntimeOptions& options) {
  const std::string_view name = options.device;
  if (name != kSimulated && !name.starts_with(fmt::format("{}:", kSimulated))) return std::nullopt;
  DeviceProfile profile =
      name == kSimulated ? device_profiles().front() : find_profile(name.substr(kSimulated.size() + 1));
  profile.total_bytes = options.device_memory_bytes.value_or(profile.total_bytes);
  profile.others_bytes = options.others_bytes.value_or(profile.others_bytes);
  profile.context_bytes = options.context_bytes.value_or(profile.context_bytes);
  return profile;
}

}  // namespace headroom
