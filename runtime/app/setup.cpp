#include "runtime/app/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/errors.h"
#include "device/host/cpu_memory.h"
#include "runtime/graph/placement.h"

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
  profile.page_bytes = CpuMemory::kPageBytes;
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

StrategySettings strategy_of(const RunSetup& setup) {
  return setup.strategy ? *setup.strategy : setup.options.strategy_settings();
}

int64_t others_bytes(const RunSetup& setup) {
  if (setup.gpus.physical.empty()) return setup.device.others_bytes;
  const LogicalGpu& gpu = setup.gpus.find(default_device(setup.options));
  return setup.gpus.physical[static_cast<size_t>(gpu.physical)].used_bytes;
}

int64_t free_bytes(const RunSetup& setup) {
  return setup.device.total_bytes - others_bytes(setup);
}

const PhysicalGpu* gpu_of(const RunSetup& setup, std::string_view device) {
  const DeviceName name = parse_device_name(device);
  if (name.type == DeviceType::kCpu || setup.gpus.physical.empty()) return nullptr;
  return &setup.gpus.physical[static_cast<size_t>(setup.gpus.find(name).physical)];
}

std::optional<std::string> lower_memory_to_free(RuntimeOptions& options) {
  if (!options.memory_bytes) return std::nullopt;
  const int64_t free = free_bytes(setup_of(options)), asked = *options.memory_bytes;
  if (asked <= free) return std::nullopt;
  options.memory_bytes = free;
  return fmt::format("a budget of {} exceeds the free memory of {}: planned for all of it, {}",
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

DeviceName ReplicaDevices::find(std::string_view in_graph) const {
  if (in_graph.empty()) return first;
  DeviceName name = parse_device_name(in_graph);
  if (count) name.ordinal += first.ordinal;
  return name;
}

std::string ReplicaDevices::text() const {
  std::string text = first.short_text();
  for (int i = 1; i < count.value_or(1); ++i) {
    text += ", " + DeviceName{first.type, first.ordinal + i}.short_text();
  }
  return text;
}

ReplicaDevices devices_of_replica(const RuntimeOptions& options, int replicas, int rank) {
  if (replicas == 1) return {default_device(options)};
  int count = 1;
  for (const auto& [scope, device] : parse_scopes_on_devices(options.place)) {
    const DeviceName name = parse_device_name(device);
    if (name.type == DeviceType::kCpu) {
      throw InvalidArgument(fmt::format(
          "place: {}={} with {} replicas: there is one CPU for all of them; place it on a GPU, counted from "
          "the first one of a replica",
          scope, name.short_text(), replicas));
    }
    count = std::max(count, name.ordinal + 1);
  }
  return {{DeviceType::kGpu, rank * count}, count};
}

std::vector<ReplicaDevices> replica_devices(const RuntimeOptions& options, const DeviceMap& gpus,
                                            int replicas) {
  const DeviceName first = default_device(options);
  if (replicas == 1) return {{first}};
  if (first.type != DeviceType::kGpu) {
    throw InvalidArgument(
        fmt::format("{} replicas need as many GPUs, and the device is '{}'", replicas, options.device));
  }
  if (first.ordinal != 0) {
    throw InvalidArgument(fmt::format(
        "replicas are on the first devices, {} is another; visible-devices chooses", first.short_text()));
  }
  std::vector<ReplicaDevices> ranks;
  for (int rank = 0; rank < replicas; ++rank) ranks.push_back(devices_of_replica(options, replicas, rank));
  const int64_t each = *ranks.front().count, needed = each * replicas;
  const auto count = static_cast<int64_t>(gpus.logical.size());
  if (needed > count) {
    throw InvalidArgument(fmt::format(
        "{} replicas{} need {} logical GPUs, device {} has {}; virtual-devices cuts one into several",
        replicas, each == 1 ? "" : fmt::format(" on {} devices each", each),
        each == 1 ? "as many" : fmt::format("{}", needed), options.device, count));
  }
  return ranks;
}

}  // namespace headroom
