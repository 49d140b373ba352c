#include "runtime/app/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/bytes.h"
#include "runtime/base/errors.h"

namespace headroom {
namespace {

// Strategies on a CPU reserve from the host's allocator, which hands out pages.
constexpr int64_t kHostPage = 4096;

// `text` with another VALUE in its element KEY=VALUE, such as "hard-limit=1GiB" or "caching+limit=1GiB";
// nothing when no element has that key.
std::optional<std::string> with_value(const std::string& text, std::string_view key,
                                      const std::string& value) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    const std::string_view element = std::string_view(text).substr(begin, end - begin);
    if (element.starts_with(key) && element.substr(key.size()).starts_with('=')) {
      const size_t from = begin + key.size() + 1;
      const size_t to = std::min(text.find(':', from), end);
      return text.substr(0, from) + value + text.substr(to);
    }
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace

DeviceProfile cpu_profile(int64_t total_bytes) {
  DeviceProfile profile = find_profile("h200");
  profile.name = "cpu";
  profile.total_bytes = total_bytes;
  profile.others_bytes = profile.context_bytes = profile.stack_bytes = profile.own_module_bytes = 0;
  profile.blas = profile.dnn = {};
  profile.granularity_bytes = kHostPage;
  profile.tflops = 0.1;  // two cores with vectors of 8 floats
  profile.memory_gb_per_s = 20;
  return profile;
}

RunSetup setup_of(const RuntimeOptions& options) {
  return setup_of(options, find_devices(options));
}

RunSetup setup_of(const RuntimeOptions& options, DeviceMap gpus) {
  RunSetup setup{.device = cpu_profile(), .gpus = std::move(gpus), .options = options};
  if (setup.gpus.physical.empty()) return setup;
  if (const std::optional<DeviceProfile> simulated = simulated_profile(options)) {
    setup.device = *simulated;
    return setup;
  }
  const LogicalGpu& logical = setup.gpus.find(default_device(options));
  const PhysicalGpu& gpu = setup.gpus.physical[static_cast<size_t>(logical.physical)];
  setup.device = find_profile("h200");
  setup.device.name = gpu.name;
  setup.device.compute_capability = gpu.compute_capability;
  setup.device.total_bytes = options.device_memory_bytes.value_or(gpu.total_bytes);
  if (options.others_bytes) {
    for (PhysicalGpu& physical : setup.gpus.physical) physical.used_bytes = *options.others_bytes;
  }
  return setup;
}

int64_t free_bytes(const RunSetup& setup) {
  int64_t bytes = setup.device.total_bytes;
  if (!setup.gpus.physical.empty()) {
    const LogicalGpu& gpu = setup.gpus.find(default_device(setup.options));
    bytes -= setup.gpus.physical[static_cast<size_t>(gpu.physical)].used_bytes;
  }
  return bytes / setup.device.granularity_bytes * setup.device.granularity_bytes;
}

std::optional<std::string> lower_memory_to_free(RuntimeOptions& options) {
  if (!options.memory_bytes) return std::nullopt;
  const int64_t free = free_bytes(setup_of(options)), asked = *options.memory_bytes;
  if (asked <= free) return std::nullopt;
  options.memory_bytes = free;
  return fmt::format("a budget of {} is more than {} has free: planned for all of that, {}",
                     format_bytes(asked), options.device, format_bytes(free));
}

std::optional<RuntimeOptions> with_limit(RuntimeOptions options, int64_t bytes) {
  for (std::optional<int64_t>* limit : {&options.limit_bytes, &options.memory_bytes}) {
    if (!*limit) continue;
    *limit = bytes;
    return options;
  }
  const std::string first = options.strategy.substr(0, options.strategy.find_first_of("=:+"));
  for (const std::string_view key :
       {std::string_view(first), std::string_view("limit"), std::string_view("process-limit")}) {
    if (auto text = with_value(options.strategy, key, std::to_string(bytes))) {
      options.strategy = *text;
      return options;
    }
  }
  return std::nullopt;
}

RuntimeOptions with_more_held(RuntimeOptions options, const DeviceMap& gpus, int64_t bytes) {
  if (bytes == 0) return options;
  const bool is_simulated = simulated_profile(options).has_value();
  std::vector<GpuSizes> held;
  for (const PhysicalGpu& gpu : gpus.physical) held.push_back({gpu.index, {gpu.used_bytes + bytes}});
  options.others_bytes = held.at(0).bytes[0];
  if (is_simulated && held.size() > 1) options.others_by_gpu = format_gpu_sizes(held);
  return options;
}

void require_whole_replicas(int replicas, const RuntimeOptions& options) {
  if (replicas == 1 || options.place.empty()) return;
  throw InvalidArgument(
      fmt::format("place with {} replicas: each replica has the whole net on a device of its own; one alone "
                  "can be spread over devices, and several that do not fit take less with --shard-optimizer "
                  "or a smaller --batch",
                  replicas));
}

std::vector<DeviceName> replica_devices(const RuntimeOptions& options, const DeviceMap& gpus, int replicas) {
  require_whole_replicas(replicas, options);
  const DeviceName first = default_device(options);
  if (replicas == 1) return {first};
  if (first.type != DeviceType::kGpu) {
    throw InvalidArgument(
        fmt::format("{} replicas need as many GPUs, and the device is '{}'", replicas, options.device));
  }
  if (first.ordinal != 0) {
    throw InvalidArgument(fmt::format(
        "replicas are on the first devices, {} is another; visible-devices chooses", first.short_text()));
  }
  const size_t count = gpus.logical.size();
  if (static_cast<size_t>(replicas) > count) {
    throw InvalidArgument(fmt::format(
        "{} replicas need as many logical GPUs, device {} has {}; virtual-devices cuts one into several",
        replicas, options.device, count));
  }
  std::vector<DeviceName> names;
  for (int rank = 0; rank < replicas; ++rank) names.push_back({DeviceType::kGpu, rank});
  return names;
}

}  // namespace headroom
