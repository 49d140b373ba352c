#include "tools/workload/recorded_setup.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "allocators/strategies/strategy_text.h"
#include "allocators/strategies/torch_settings.h"
#include "runtime/base/errors.h"

namespace headroom {
namespace {

std::string_view setting_of(const Trace& trace, std::string_view name) {
  for (const auto& [setting, value] : trace.settings) {
    if (setting == name) return value;
  }
  return {};
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
  const std::string_view recorded = setting_of(trace, "strategy");
  // The environment may have settings for PyTorch's own, which tracers call caching.
  if (!recorded.empty() && !is_of_torch(trace)) {
    try {
      parse_strategy(recorded);
      return std::string(recorded);
    } catch (const InvalidArgument&) {  // of another program, or from a shared library
    }
  }
  const std::string settings = settings_of_environment();
  return std::string(kTorchStrategy) + (settings.empty() ? "" : "," + settings);
}

RuntimeOptions with_recorded_device(RuntimeOptions options, const Trace& trace) {
  const auto last = std::find_if(
      trace.device_events.rbegin(), trace.device_events.rend(),
      [](const DeviceEvent& event) { return event.kind == DeviceEvent::Kind::kDevice && event.bytes > 0; });
  if (last == trace.device_events.rend()) {
    options.device = "sim:h200";
    return options;
  }
  options.device = "sim";
  if (!options.device_memory_bytes) options.device_memory_bytes = last->bytes;
  if (!options.others_bytes) options.others_bytes = last->others_bytes;
  return with_named_profile(std::move(options));
}

}  // namespace headroom
