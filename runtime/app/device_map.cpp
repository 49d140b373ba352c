#include "runtime/app/device_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/text.h"
#include "device/host/memory_ledger.h"

namespace headroom {
namespace {

// The number that an element of CUDA_VISIBLE_DEVICES begins with, as strtol would read it: "0, 1" and
// "0gpu,1gpu" are both 0 and 1. PyTorch's torch.cuda counts GPUs by the same rule.
std::optional<int> leading_number(std::string_view element) {
  element.remove_prefix(std::min(element.find_first_not_of(" \t\n\v\f\r"), element.size()));
  const bool is_negative = element.starts_with('-');
  if (is_negative || element.starts_with('+')) element.remove_prefix(1);
  int number = 0;
  if (std::from_chars(element.data(), element.data() + element.size(), number).ec != std::errc() ||
      element.starts_with('-') || (is_negative && number != 0)) {
    return std::nullopt;
  }
  return number;
}

int gpu_number(std::string_view text, std::string_view what, std::string_view example) {
  if (const std::optional<int> number = parse_ordinal(text)) return *number;
  throw InvalidArgument(fmt::format("{}: '{}' is not the number of a GPU; write {}", what, text, example));
}

[[noreturn]] void refuse_twice(std::string_view what, int gpu) {
  throw InvalidArgument(fmt::format("{}: GPU {} is named twice", what, gpu));
}

// CUDA's names: four digits of domain, small letters. NVML has "00000000:3B:00.0".
std::string cuda_style(std::string bus_id) {
  if (bus_id.size() == std::string_view("00000000:3B:00.0").size()) bus_id.erase(0, 4);
  return lowered(bus_id);
}

// The GPUs that CUDA shows, by its numbers.
std::vector<int> shown(const std::vector<PhysicalGpu>& physical) {
  std::vector<int> positions;
  for (size_t i = 0; i < physical.size(); ++i) {
    if (physical[i].ordinal) positions.push_back(static_cast<int>(i));
  }
  std::ranges::sort(positions, [&](int a, int b) {
    return physical[static_cast<size_t>(a)].ordinal < physical[static_cast<size_t>(b)].ordinal;
  });
  return positions;
}

void check_limits(const PhysicalGpu& gpu, const GpuSizes& limits) {
  if (std::ranges::any_of(limits.bytes, [](int64_t bytes) { return bytes <= 0; })) {
    throw InvalidArgument(
        fmt::format("virtual devices of GPU {}: each needs a limit above 0 bytes", limits.gpu));
  }
  // If there is no management library the size is unknown, and the driver refuses later.
  int64_t left = gpu.total_bytes > 0 ? gpu.total_bytes : INT64_MAX;
  for (const int64_t bytes : limits.bytes) {
    if (bytes > left) {
      throw InvalidArgument(fmt::format("virtual devices of GPU {}: their limits are together above its {}",
                                        limits.gpu, format_bytes(gpu.total_bytes)));
    }
    left -= bytes;
  }
}

}  // namespace

std::vector<GpuSizes> parse_gpu_sizes(std::string_view text, std::string_view what) {
  constexpr std::string_view kExample = "GPU:SIZE,SIZE, such as 0:1GiB,1GiB/1:2GiB";
  std::vector<GpuSizes> result;
  if (text.empty()) return result;
  for (const std::string_view part : split(text, "/")) {
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos) {
      throw InvalidArgument(fmt::format("{}: '{}' has no sizes; write {}", what, part, kExample));
    }
    GpuSizes sizes{gpu_number(part.substr(0, colon), what, kExample), {}};
    for (const std::string_view size : split(part.substr(colon + 1), ",")) {
      sizes.bytes.push_back(parse_bytes(size, what));
    }
    for (const GpuSizes& other : result) {
      if (other.gpu == sizes.gpu) refuse_twice(what, sizes.gpu);
    }
    result.push_back(std::move(sizes));
  }
  return result;
}

std::string format_gpu_sizes(std::span<const GpuSizes> sizes) {
  std::string text;
  for (const GpuSizes& of_gpu : sizes) {
    text += fmt::format("{}{}:", text.empty() ? "" : "/", of_gpu.gpu);
    for (const int64_t bytes : of_gpu.bytes) {
      if (text.back() != ':') text += ',';
      text += bytes % kMiB == 0 ? fmt::format("{}MiB", bytes / kMiB) : fmt::format("{}", bytes);
    }
  }
  return text;
}

std::vector<int> parse_gpu_numbers(std::string_view text, std::string_view what) {
  std::vector<int> numbers;
  if (text == "none") return numbers;
  for (const std::string_view part : split(text, ",")) {
    numbers.push_back(gpu_number(part, what, "numbers such as 1,2, or none"));
  }
  return numbers;
}

const LogicalGpu& DeviceMap::find(const DeviceName& name) const {
  if (name.type == DeviceType::kGpu && static_cast<size_t>(name.ordinal) < logical.size()) {
    return logical[static_cast<size_t>(name.ordinal)];
  }
  std::vector<std::string> names = {DeviceName{DeviceType::kCpu, 0}.full_text()};
  for (size_t i = 0; i < logical.size(); ++i) {
    names.push_back(DeviceName{DeviceType::kGpu, static_cast<int>(i)}.full_text());
  }
  throw InvalidArgument(fmt::format(
      "no device {}, but available devices are [ {} ]: {} of the machine's {} GPU{} {} visible{}",
      name.text(), fmt::join(names, ", "), visible.size(), physical.size(), physical.size() == 1 ? "" : "s",
      visible.size() == 1 ? "is" : "are", hidden_by.empty() ? "" : fmt::format(" ({})", hidden_by)));
}

bool DeviceMap::has_virtual() const {
  return std::ranges::any_of(logical, [](const LogicalGpu& gpu) { return gpu.limit_bytes.has_value(); });
}

DeviceMap make_device_map(std::vector<PhysicalGpu> physical, const std::optional<std::vector<int>>& wanted,
                          std::span<const GpuSizes> virtual_limits) {
  DeviceMap map;
  map.physical = std::move(physical);
  const std::vector<int> by_ordinal = shown(map.physical);
  if (wanted) {
    for (const int gpu : *wanted) {
      if (gpu < 0 || static_cast<size_t>(gpu) >= by_ordinal.size()) {
        throw InvalidArgument(
            fmt::format("'visible_device_list' listed an invalid GPU id '{}' but visible device count is {}",
                        gpu, by_ordinal.size()));
      }
      const int position = by_ordinal[static_cast<size_t>(gpu)];
      if (std::ranges::find(map.visible, position) != map.visible.end()) {
        refuse_twice("visible devices", gpu);
      }
      map.visible.push_back(position);
    }
    map.hidden_by =
        wanted->empty() ? "visible-devices=none" : fmt::format("visible-devices={}", fmt::join(*wanted, ","));
  } else {
    map.visible = by_ordinal;
  }

  const auto limits_of = [&](int gpu) {
    return std::ranges::find_if(virtual_limits, [&](const GpuSizes& sizes) { return sizes.gpu == gpu; });
  };
  for (const GpuSizes& limits : virtual_limits) {
    const bool is_visible = std::ranges::any_of(map.visible, [&](int position) {
      return map.physical[static_cast<size_t>(position)].ordinal == limits.gpu;
    });
    if (!is_visible) {
      throw InvalidArgument(fmt::format("virtual devices of GPU {}: it is not visible{}", limits.gpu,
                                        map.hidden_by.empty() ? "" : fmt::format(" ({})", map.hidden_by)));
    }
  }
  for (const int position : map.visible) {
    const PhysicalGpu& gpu = map.physical[static_cast<size_t>(position)];
    const auto limits = limits_of(*gpu.ordinal);
    if (limits == virtual_limits.end() || limits->bytes.empty()) {
      map.logical.push_back({position});
      continue;
    }
    check_limits(gpu, *limits);
    for (const int64_t bytes : limits->bytes) map.logical.push_back({position, bytes});
  }
  return map;
}

std::vector<PhysicalGpu> simulated_gpus(const DeviceProfile& profile, std::span<const GpuSizes> others,
                                        const char* cuda_visible_devices) {
  std::vector<PhysicalGpu> gpus(static_cast<size_t>(profile.gpus));
  for (size_t i = 0; i < gpus.size(); ++i) {
    PhysicalGpu& gpu = gpus[i];
    gpu.index = static_cast<int>(i);
    gpu.ordinal = gpu.index;
    gpu.name = profile.model.empty() ? "simulated " + profile.name : profile.model;
    gpu.pci_bus_id = fmt::format("0000:{:02x}:00.0", i + 1);
    gpu.compute_capability = profile.compute_capability;
    gpu.total_bytes = profile.total_bytes;
    gpu.used_bytes = profile.others_bytes;
  }
  for (const GpuSizes& sizes : others) {
    if (static_cast<size_t>(sizes.gpu) >= gpus.size() || sizes.bytes.size() != 1) {
      throw InvalidArgument(fmt::format("others-by-gpu: one size for each of GPUs 0 to {}", gpus.size() - 1));
    }
    gpus[static_cast<size_t>(sizes.gpu)].used_bytes = sizes.bytes.front();
  }
  for (PhysicalGpu& gpu : gpus) {
    gpu.free_bytes = MemoryLedger(gpu.total_bytes, gpu.used_bytes).info().free;  // refuses more than all
  }

  if (cuda_visible_devices == nullptr || gpus.size() == 1) return gpus;
  for (PhysicalGpu& gpu : gpus) gpu.ordinal.reset();
  int next = 0;
  for (const std::string_view part : split(cuda_visible_devices, ",")) {
    const std::optional<int> number = leading_number(part);
    if (!number || static_cast<size_t>(*number) >= gpus.size()) break;
    std::optional<int>& ordinal = gpus[static_cast<size_t>(*number)].ordinal;
    if (ordinal) {  // the driver shows none at all where one is named twice
      for (PhysicalGpu& gpu : gpus) gpu.ordinal.reset();
      break;
    }
    ordinal = next++;
  }
  return gpus;
}

std::vector<DeviceName> available_devices(const DeviceMap& map, const DeviceName& first) {
  std::vector<DeviceName> names = {first};
  const auto add = [&](const DeviceName& name) {
    if (name != first) names.push_back(name);
  };
  for (size_t i = 0; i < map.logical.size(); ++i) add({DeviceType::kGpu, static_cast<int>(i)});
  add({DeviceType::kCpu, 0});
  return names;
}

StrategySettings strategy_on(const DeviceMap& map, const DeviceName& name, const StrategySettings& strategy) {
  StrategySettings result = strategy;
  if (name.type == DeviceType::kCpu) return result;
  const LogicalGpu& gpu = map.find(name);
  if (!map.has_virtual()) return result;
  if (strategy.memory_fraction) {
    throw InvalidArgument(
        "It's invalid to set per_process_gpu_memory_fraction when virtual_devices is set: virtual devices "
        "have limits of their own, so memory-fraction must go");
  }
  if (!gpu.limit_bytes) return result;
  if (strategy.limit_bytes) {
    throw InvalidArgument("virtual devices have limits of their own: pass them or a limit, not both");
  }
  if (strategy.limit_scope == LimitScope::kProcess) {
    throw InvalidArgument(
        "limit-scope process: virtual devices of one GPU share its context and libraries, so their limits "
        "can only count their pools");
  }
  result.limit_bytes = gpu.limit_bytes;
  return result;
}

std::vector<std::string> mapping_lines(const DeviceMap& map) {
  std::vector<std::string> lines;
  for (const LogicalGpu& logical : map.logical) {
    const PhysicalGpu& gpu = map.physical[static_cast<size_t>(logical.physical)];
    lines.push_back(fmt::format("{} -> device: {}, name: {}, pci bus id: {}, compute capability: {}.{}",
                                DeviceName{DeviceType::kGpu, static_cast<int>(lines.size())}.text(),
                                gpu.index, gpu.name, cuda_style(gpu.pci_bus_id), gpu.compute_capability / 10,
                                gpu.compute_capability % 10));
  }
  return lines;
}

std::string count_line(const DeviceMap& map) {
  const auto count =
      std::ranges::count_if(map.physical, [](const PhysicalGpu& gpu) { return gpu.ordinal.has_value(); });
  return fmt::format("{} Physical GPU{}, {} Logical GPU{}", count, count == 1 || map.has_virtual() ? "" : "s",
                     map.logical.size(), map.logical.size() == 1 ? "" : "s");
}

}  // namespace headroom
