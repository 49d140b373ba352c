#include "runtime/app/options.h"

#include <fmt/format.h>

#include <algorithm>

#include "allocators/strategies/strategy_text.h"
#include "allocators/strategies/torch_settings.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "base/text.h"

namespace headroom {
namespace {

constexpr std::string_view kSimulated = "sim", kCuda = "cuda";
constexpr int64_t kMaxGpus = 64;  // no machine on the market has more
constexpr int64_t kMaxThreads = 1024;

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Strategy& strategy : strategies()) names.emplace_back(strategy.name);
  names.emplace_back(kTorchStrategy);
  return names;
}

// More than a name; parse_strategy finds its mistakes.
bool is_composed(const std::string& strategy) {
  return strategy.find_first_of("=:+,") != std::string::npos;
}

struct SimulatedName {
  std::string_view profile;
  int ordinal = 0;
};

bool is_profile(std::string_view name) {
  const auto profiles = device_profiles();
  return std::ranges::any_of(profiles, [&](const DeviceProfile& profile) { return profile.name == name; });
}

// "sim", "sim:PROFILE", "sim:PROFILE:N", and for profiles that exist "PROFILE" and "PROFILE:N".
std::optional<SimulatedName> parse_simulated(std::string_view name) {
  if (name == kSimulated) return SimulatedName{device_profiles().front().name};
  const bool is_prefixed = name.starts_with(kSimulated) && name[kSimulated.size()] == ':';
  SimulatedName result{is_prefixed ? name.substr(kSimulated.size() + 1) : name};
  if (const size_t colon = result.profile.rfind(':'); colon != std::string_view::npos) {
    const std::optional<int> ordinal = parse_ordinal(result.profile.substr(colon + 1));
    if (ordinal) result = {result.profile.substr(0, colon), *ordinal};
  }
  return is_prefixed || is_profile(result.profile) ? std::optional(result) : std::nullopt;
}

bool is_gpu_of_profile(std::string_view name) {
  const std::optional<SimulatedName> simulated = parse_simulated(name);
  return simulated && is_profile(simulated->profile);
}

// Returns true if the options describe a simulated GPU only by its memory.
bool is_known_by_total(const RuntimeOptions& options) {
  return options.device == kSimulated && options.device_memory_bytes;
}

void require_more_than_context(const RuntimeOptions& options) {
  if (!options.device_memory_bytes) return;
  const std::optional<DeviceProfile> profile = simulated_profile(options);
  if (!profile || profile->total_bytes > profile->context_bytes) return;
  throw InvalidArgument(
      fmt::format("device-memory of {}: the context alone takes {}{}", format_bytes(profile->total_bytes),
                  format_bytes(profile->context_bytes),
                  profile->total_bytes < kMiB ? "; a number without a unit is bytes: write 24GiB" : ""));
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
  if (!name.starts_with(kCuda) || name[kCuda.size()] != ':') return std::nullopt;
  return parse_ordinal(name.substr(kCuda.size() + 1));
}

DeviceName default_device(const RuntimeOptions& options) {
  if (const std::optional<SimulatedName> simulated = parse_simulated(options.device)) {
    return {DeviceType::kGpu, simulated->ordinal};
  }
  const std::optional<int> ordinal = cuda_ordinal(options.device);
  return ordinal ? DeviceName{DeviceType::kGpu, *ordinal} : DeviceName{DeviceType::kCpu, 0};
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
  if (memory_bytes) {
    if (settings.limit_bytes || settings.memory_fraction) {
      throw InvalidArgument("memory and a limit exclude each other: --memory sets the limit of the strategy");
    }
    settings.limit_bytes = memory_bytes;
    settings.limit_scope = LimitScope::kProcess;
    settings.limit_is_budget = true;
  }
  settings.record_settings = recorded_program;
  if (!record.empty()) {
    if (!settings.record_path.empty())
      throw InvalidArgument("record is given twice: in the strategy and as an option");
    settings.record_path = record;
  }
  if (limit_scope == LimitScope::kProcess) settings.limit_scope = LimitScope::kProcess;
  settings.allow_growth = settings.allow_growth || allow_growth;
  return settings;
}

bool names_gpu(const std::string& name) {
  if (cuda_ordinal(name) || is_gpu_of_profile(name)) return true;
  if (const std::string cards = card_suggestion(name); !cards.empty())
    throw InvalidArgument(fmt::format("--device: unknown value '{}'{}", printable(name, 200), cards));
  return false;
}

void add_device_options(OptionSet& set, RuntimeOptions& options) {
  set.begin_group("Device");
  set.add_choice("device", "Device to compute on", &options.device, device_names(), names_gpu);
  set.add_bytes("device-memory", "Total memory of the GPU; on a real GPU, a ballast allocates the rest",
                &options.device_memory_bytes);
  set.add_bytes("others", "GPU memory that other processes use; on a real GPU, a ballast allocates it",
                &options.others_bytes);
  set.add_bytes("context", "Memory that the context of a simulated GPU uses", &options.context_bytes);
  set.add_text("others-by-gpu", "--others for each GPU of a simulated machine, such as 2:11000MiB/3:11000MiB",
               &options.others_by_gpu);
  set.add_text("visible-devices", "GPUs to use, such as 1,2, or none; they become /GPU:0 and /GPU:1",
               &options.visible_devices);
  set.add_text("virtual-devices", "Split a GPU into devices with these limits, such as 0:1024MiB,1024MiB",
               &options.virtual_devices);
  set.add_check([&options] {
    require_more_than_context(options);
    // So that the output names the card, and keeps it when its memory changes.
    if (is_known_by_total(options)) options = with_named_profile(std::move(options));
  });
  set.add_integer("gpus", "Number of GPUs in the simulated machine; 0: as in its profile", &options.gpus, 0,
                  kMaxGpus);
  set.begin_group();
}

void add_runtime_options(OptionSet& set, RuntimeOptions& options, std::vector<std::string>* strategies) {
  add_device_options(set, options);
  set.begin_group("Memory");
  if (strategies != nullptr) {
    set.add_list("strategy", "Memory strategies, such as mapped or hard-limit=1GiB", strategies);
  } else {
    set.add_choice("strategy", "Memory strategy, such as allow-growth or hard-limit=1GiB", &options.strategy,
                   strategy_names(), is_composed);
  }
  set.add_check([&set, &options] {
    options.strategy_is_given = set.is_given("strategy");
    if (options.allow_growth && !options.strategy_is_given) options.strategy = kGrowingStrategy;
    options.strategy_settings();  // refuses limits that exclude each other
  });
  set.add_bytes("limit", "Maximum memory that the strategy reserves", &options.limit_bytes);
  set.add_choice("limit-scope",
                 "Apply the limit to the pool, or to the whole process including context and libraries",
                 &options.limit_scope);
  set.add_bytes("memory", "Memory budget of this process on the device; plans the training step to fit it",
                &options.memory_bytes);
  set.add_choice("split-batch",
                 "With --memory, run the batch in parts, which changes rounding: only if no other change "
                 "fits the budget, or whenever that is faster",
                 &options.split_batch);
  set.add_switch(
      "compress-norms",
      "With --memory, allow batch norms to store normalized values for their gradients in 8 bits, if "
      "that saves time or no other change fits the budget",
      &options.compress_norms);
  set.add_bytes("host-memory",
                "With --memory, maximum page-locked host memory for values and optimizer state, for all "
                "replicas together (default: none)",
                &options.host_memory_bytes);
  set.add_number("memory-fraction", "Maximum share of the device's memory for the pool, instead of --limit",
                 &options.memory_fraction, 0, 1);
  set.add_switch("allow-growth",
                 "Grow the pool on demand; without --strategy, choose the strategy allow-growth",
                 &options.allow_growth);
  set.add_override("allow-growth", "TF_FORCE_GPU_ALLOW_GROWTH");
  set.add_switch("libraries-first",
                 "Start cuBLAS and cuDNN before the pool, so that their memory is not part of it",
                 &options.libraries_first);
  set.add_choice(
      "plan",
      "Allocate value by value, pack all values into one arena, or pack without ordering parallel branches",
      &options.plan);
  set.add_text("record", "Record every allocation to this file, for headroom report", &options.record);
  set.begin_group("Threads and placement");
  set.add_integer("intra-op-threads", "Host threads per kernel; 0: one for each CPU",
                  &options.intra_op_threads, 0, kMaxThreads);
  set.add_integer("inter-op-threads",
                  "Kernels that the CPU runs in parallel in a parallel plan; 0: one at a time",
                  &options.inter_op_threads, 0, kMaxThreads);
  set.add_switch("check-streams", "Find missing waits between the streams of a simulated GPU",
                 &options.check_streams);
  set.add_text("place",
               "Devices of layers by name, such as dense=/GPU:1,dense_1=/GPU:1; with --replicas, numbers "
               "start at each replica's first GPU",
               &options.place);
  set.add_choice("device-policy", "Copy inputs from other devices (silent) or reject them (explicit)",
                 &options.device_policy);
  set.add_switch("allow-soft-placement",
                 "Run an op on another device if its own does not exist, copying its inputs",
                 &options.allow_soft_placement);
  set.add_switch("log-placement", "Print the device of every op and variable to stderr",
                 &options.log_placement);
  set.add_integer("seed", "Random seed of weights, data order and dropout", &options.seed, 0);
  set.begin_group();
}

void pack_for_memory(OptionSet& set, RuntimeOptions& options) {
  if (!options.memory_bytes) {
    for (const char* name : {"split-batch", "compress-norms", "host-memory"}) {
      if (set.is_on_command_line(name)) set.add_note(fmt::format("--{} does nothing without --memory", name));
    }
    return;
  }
  if (!set.is_given("plan")) options.plan = PlanMode::kPacked;
  if (options.host_memory_bytes && options.plan != PlanMode::kPacked)
    set.add_note(fmt::format("--host-memory does nothing with --plan {}", to_string(options.plan)));
  // An arena needs no pool beneath it, and pools take memory in units of their own.
  if (!set.is_given("strategy")) options.strategy = "direct";
}

void record_program(RuntimeOptions& options, const std::string& kind, const std::string& name,
                    int64_t batch) {
  options.recorded_program = {{kind, name}, {"batch", std::to_string(batch)}, {"runs_on", options.device}};
}

PlacementSettings RuntimeOptions::placement_settings() const {
  return {.allow_copies = device_policy == DevicePolicy::kSilent,
          .allow_soft_placement = allow_soft_placement};
}

RuntimeOptions with_named_profile(RuntimeOptions options) {
  if (options.device != kSimulated) return options;
  const DeviceProfile profile = *simulated_profile(options);
  if (profile.others_bytes != find_profile(profile.name).others_bytes) {
    options.others_bytes = profile.others_bytes;
  }
  options.device = fmt::format("{}:{}", kSimulated, profile.name);
  return options;
}

std::optional<DeviceProfile> simulated_profile(const RuntimeOptions& options) {
  const std::optional<SimulatedName> name = parse_simulated(options.device);
  if (!name) return std::nullopt;
  DeviceProfile profile = find_profile(name->profile);
  if (is_known_by_total(options)) {
    profile = nearest_profile(*options.device_memory_bytes);
    profile.others_bytes = 0;
  }
  profile.total_bytes = options.device_memory_bytes.value_or(profile.total_bytes);
  profile.others_bytes = options.others_bytes.value_or(profile.others_bytes);
  if (options.context_bytes) {
    profile.context_bytes = *options.context_bytes;
    profile.stack_bytes = 0;
  }
  if (options.gpus > 0) profile.gpus = static_cast<int>(options.gpus);
  return profile;
}

}  // namespace headroom
