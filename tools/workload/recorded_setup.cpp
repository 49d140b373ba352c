#include "tools/workload/recorded_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <utility>

#include "allocators/strategies/strategy_text.h"
#include "allocators/strategies/torch_settings.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "device/host/profiles.h"
#include "tools/workload/recorded_failure.h"

namespace headroom {
namespace {

std::string_view setting_of(const Trace& trace, std::string_view name) {
  for (const auto& [setting, value] : trace.settings) {
    if (setting == name) return value;
  }
  return {};
}

// Returns the settings of PyTorch's allocator from a snapshot, as text for parse_torch_settings; nullopt if
// it has none.
std::optional<std::string> recorded_torch_settings(const Trace& trace) {
  std::optional<std::string> settings;
  for (const auto& [name, value] : trace.settings) {
    if (name == "PYTORCH_CUDA_ALLOC_CONF") settings = value;
  }
  if (!settings) return std::nullopt;
  try {
    parse_torch_settings(*settings);
    // Text after a '+' would be ours, such as a file to write to.
    if (settings->find('+') != std::string::npos) settings.emplace();
  } catch (const InvalidArgument&) {  // from a version with other settings
    settings.emplace();
  }
  constexpr std::string_view kExpandable = "expandable_segments";
  if (!setting_of(trace, kExpandable).empty() && settings->find(kExpandable) == std::string::npos) {
    *settings += (settings->empty() ? "" : ",") + std::string(kExpandable) + ":True";
  }
  return settings;
}

// The smallest card that has so much free and reserved together; null where none has.
const DeviceProfile* smallest_card_with(int64_t bytes) {
  const DeviceProfile* smallest = nullptr;
  for (const DeviceProfile& profile : device_profiles()) {
    const bool is_free_card = profile.gpus == 1 && profile.others_bytes == 0;
    if (!is_free_card || profile.total_bytes < bytes) continue;
    if (smallest == nullptr || profile.total_bytes < smallest->total_bytes) smallest = &profile;
  }
  return smallest;
}

// A card of which a failed request says what was free. The rest is the process's own context, or others'.
RuntimeOptions with_card_of(RuntimeOptions options, int64_t seen) {
  const DeviceProfile* card = smallest_card_with(seen);
  if (card == nullptr) {
    options.device = "sim";
    options.device_memory_bytes = seen + nearest_profile(seen).overhead_bytes();
    return with_named_profile(std::move(options));
  }
  options.device = "sim:" + card->name;
  if (!options.others_bytes) {
    options.others_bytes = std::max<int64_t>(0, card->total_bytes - card->overhead_bytes() - seen);
  }
  return options;
}

// Returns the driver's last report about the device; null if there is none.
const DeviceEvent* last_device(const Trace& trace) {
  const auto last = std::find_if(
      trace.device_events.rbegin(), trace.device_events.rend(),
      [](const DeviceEvent& event) { return event.kind == DeviceEvent::Kind::kDevice && event.bytes > 0; });
  return last == trace.device_events.rend() ? nullptr : &*last;
}

bool is_profile(std::string_view name) {
  const auto profiles = device_profiles();
  return std::ranges::any_of(profiles, [&](const DeviceProfile& profile) { return profile.name == name; });
}

// PyTorch's own variables; the first has precedence there.
std::string settings_of_environment() {
  for (const char* variable : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    const char* text = std::getenv(variable);
    if (text != nullptr && *text != '\0') return text;
  }
  return {};
}

}  // namespace

bool is_of_torch(const Trace& trace) {
  return trace.format == "PyTorch memory snapshot" || setting_of(trace, "framework").starts_with("PyTorch");
}

std::string recorded_strategy(const Trace& trace) {
  if (trace.format == "RMM log") return "pool";
  if (const std::optional<std::string> settings = recorded_torch_settings(trace)) {
    return std::string(kTorchStrategy) + (settings->empty() ? "" : "," + *settings);
  }
  const std::string_view recorded = setting_of(trace, "strategy");
  // The environment may have settings for PyTorch's own, which tracers call caching.
  if (!recorded.empty() && !is_of_torch(trace)) {
    try {
      const StrategySettings settings = parse_strategy(recorded);
      // A recording names no file to load or to write.
      if (settings.plugin_path.empty() && settings.record_path.empty()) return std::string(recorded);
    } catch (const InvalidArgument&) {  // from another program, or from a shared library
    }
  }
  const std::string settings = settings_of_environment();
  return std::string(kTorchStrategy) + (settings.empty() ? "" : "," + settings);
}

std::vector<std::string> recorded_program(const Trace& trace) {
  std::vector<std::string> words;
  const auto add = [&](std::string_view option, std::string_view setting) {
    const std::string_view value = setting_of(trace, setting);
    if (value.empty() || value == "0") return;
    words.push_back(fmt::format("--{}", option));
    words.emplace_back(value);
  };
  add("net", "net");
  if (words.empty()) add("model", "model");
  if (words.empty()) return words;
  add("batch", "batch");
  add("device", "runs_on");
  return words;
}

std::vector<int64_t> seed_peaks(const Trace& trace) {
  std::vector<int64_t> peaks;
  std::istringstream text{std::string(setting_of(trace, "seed_peaks"))};
  for (int64_t peak = 0; text >> peak;) peaks.push_back(peak);
  std::ranges::sort(peaks);
  return peaks;
}

std::string assumed_values(const Trace& trace) {
  std::string text(setting_of(trace, "assumed"));
  const std::vector<int64_t> peaks = seed_peaks(trace);
  if (peaks.size() < 2) return text;
  const std::string least = format_bytes(peaks.front()), most = format_bytes(peaks.back());
  return text + (least == most
                     ? fmt::format("; over {} seeds it requests {}", peaks.size(), most)
                     : fmt::format("; over {} seeds it requests {} to {}, of which this is the most",
                                   peaks.size(), least, most));
}

std::string traced_card(const Trace& trace) {
  const std::string_view name = setting_of(trace, "device");
  return is_of_torch(trace) && is_profile(name) ? std::string(name) : "";
}

std::optional<int64_t> traced_card_bytes(const Trace& trace) {
  const std::string_view name = setting_of(trace, "device");
  return is_profile(name) ? std::optional(find_profile(name).total_bytes) : std::nullopt;
}

bool names_device(const Trace& trace) {
  return last_device(trace) != nullptr || traced_card_bytes(trace) || recorded_room_bytes(trace);
}

RuntimeOptions with_recorded_device(RuntimeOptions options, const Trace& trace) {
  const DeviceEvent* const last = last_device(trace);
  if (last == nullptr) {
    if (const std::string_view name = setting_of(trace, "device"); is_profile(name)) {
      options.device = fmt::format("sim:{}", name);
    } else if (const std::optional<int64_t> seen = recorded_room_bytes(trace)) {
      options = with_card_of(std::move(options), *seen);
    } else {
      options.device = "sim:h200";
    }
    return options;
  }
  options.device = "sim";
  if (!options.device_memory_bytes) options.device_memory_bytes = last->bytes;
  if (!options.others_bytes) options.others_bytes = last->others_bytes;
  return with_named_profile(std::move(options));
}

}  // namespace headroom
