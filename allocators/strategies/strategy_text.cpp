#include "allocators/strategies/strategy_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "allocators/strategies/torch_settings.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "base/text.h"

namespace headroom {
namespace {

template <typename T>
void set_once(std::optional<T>& target, T value, std::string_view what) {
  if (target) throw InvalidArgument(fmt::format("{} is given twice", what));
  target = value;
}

int64_t parse_call(std::string_view text) {
  const auto number = parse_number<int64_t>(text);
  if (!number || *number < 1) {
    throw InvalidArgument(fmt::format("fail is '{}': calls are counted from 1", text));
  }
  return *number;
}

// "3", "3.." and "3..5".
StrategySettings::FailingCalls parse_calls(std::string_view text) {
  constexpr std::string_view kTo = "..";
  const size_t at = text.find(kTo);
  const int64_t first = parse_call(text.substr(0, at));
  if (at == std::string_view::npos) return {first, first};
  const std::string_view rest = text.substr(at + kTo.size());
  const int64_t last = rest.empty() ? std::numeric_limits<int64_t>::max() : parse_call(rest);
  if (last < first)
    throw InvalidArgument(fmt::format("fail is '{}': the last call is before the first", text));
  return {first, last};
}

constexpr StrategyModifier kModifiers[] = {
    {"limit", "SIZE", "maximum bytes of the pool",
     [](std::string_view value, StrategySettings& settings) {
       set_once(settings.limit_bytes, parse_bytes(value, "limit"), "limit");
     }},
    {"process-limit", "SIZE", "maximum bytes of context, libraries, kernels and pool together",
     [](std::string_view value, StrategySettings& settings) {
       set_once(settings.limit_bytes, parse_bytes(value, "process-limit"), "limit");
       settings.limit_scope = LimitScope::kProcess;
     }},
    {"fraction", "SHARE", "limit as a share of the device's total memory, without a margin",
     [](std::string_view value, StrategySettings& settings) {
       set_once(settings.memory_fraction, parse_share(value, "fraction"), "fraction");
     }},
    {"reserve", "SIZE", "memory that a pool of all free memory leaves to libraries and others",
     [](std::string_view value, StrategySettings& settings) {
       set_once(settings.reserve_bytes, parse_bytes(value, "reserve"), "reserve");
     }},
    {"thread-cache", "SIZE", "freed memory that each stream caches without the common lock",
     [](std::string_view value, StrategySettings& settings) {
       set_once(settings.thread_cache_bytes, parse_bytes(value, "thread-cache"), "thread-cache");
     }},
    {"record", "PATH", "writes a trace of every allocation to a file, for headroom replay",
     [](std::string_view value, StrategySettings& settings) {
       if (!settings.record_path.empty()) throw InvalidArgument("record is given twice");
       settings.record_path = value;
     }},
    {"fail", "CALLS", "driver calls that fail: 3, or 3.. from the third on, or 3..5",
     [](std::string_view value, StrategySettings& settings) {
       set_once(settings.failing_calls, parse_calls(value), "fail");
     }},
    {"allow-growth", "", "grow a pool on demand that is otherwise reserved at the start",
     [](std::string_view, StrategySettings& settings) { settings.allow_growth = true; }},
};

// A strategy from a shared library.
constexpr std::string_view kPlugin = "plugin";

using Pair = std::pair<std::string_view, std::string_view>;

// Splits at the first `separator`; without one there is no second part.
std::pair<std::string_view, std::optional<std::string_view>> split(std::string_view text, char separator) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + 1)};
}

// Parses NAME[=VALUE]; a missing value is empty.
Pair parse_name(std::string_view text) {
  const auto [name, value] = split(text, '=');
  if (name.empty()) throw InvalidArgument(fmt::format("strategy: '{}' has no name", text));
  if (value && value->empty()) throw InvalidArgument(fmt::format("strategy: '{}' has no value", text));
  return {name, value.value_or("")};
}

void apply_modifier(std::string_view text, StrategySettings& settings) {
  const auto [name, value] = parse_name(text);
  std::vector<std::string_view> known;
  for (const StrategyModifier& modifier : kModifiers) {
    known.push_back(modifier.name);
    if (modifier.name != name) continue;
    if (modifier.value.empty() != value.empty()) {
      throw InvalidArgument(modifier.value.empty() ? fmt::format("strategy: {} takes no value", name)
                                                   : fmt::format("strategy: {} needs a value: {}={}", name,
                                                                 name, modifier.value));
    }
    return modifier.apply(value, settings);
  }
  throw InvalidArgument(
      fmt::format("strategy: unknown modifier '{}': known are {}", name, list_with_suggestion(name, known)));
}

// Splits at the first comma that is not inside brackets: lists such as [256:1,512:2] are values.
std::pair<std::string_view, std::optional<std::string_view>> split_option(std::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']') --depth;
    if (text[i] == ',' && depth <= 0) return {text.substr(0, i), text.substr(i + 1)};
  }
  return {text, {}};
}

// A setting of PYTORCH_CUDA_ALLOC_CONF is not a strategy by itself.
void require_no_torch_setting(std::string_view name, std::string_view text) {
  for (const TorchSetting& setting : torch_settings()) {
    if (setting.key != name) continue;
    throw InvalidArgument(
        fmt::format("strategy: {} is a setting of PyTorch's allocator; did you mean '{},{}'?", name,
                    kTorchStrategy, text));
  }
}

// NAME[=VALUE][:KEY=VALUE,...]
StrategySettings parse_base(std::string_view text) {
  const auto [head, options] = split(text, ':');
  const auto [name, value] = parse_name(head);
  StrategySettings settings;
  const bool is_plugin = name == kPlugin;
  if (is_plugin) {
    if (value.empty()) throw InvalidArgument("strategy: plugin needs a value: plugin=PATH");
    settings.name = name;
    settings.plugin_path = value;
  } else {
    require_no_torch_setting(name, text);
    settings.name = find_strategy(name).name;
    if (!value.empty()) settings.limit_bytes = parse_bytes(value, settings.name);
  }
  for (std::optional<std::string_view> rest = options; rest;) {
    const auto [option, next] = split_option(*rest);
    const auto [key, text_of_value] = split(option, '=');
    if (key.empty() || !text_of_value || text_of_value->empty()) {
      throw InvalidArgument(fmt::format("strategy: '{}' in '{}' is not KEY=VALUE", option, text));
    }
    settings.options.add(key, *text_of_value);
    rest = next;
  }
  if (!is_plugin) settings.options.require_known(settings.name, find_strategy(settings.name).options);
  return settings;
}

// "pytorch", or that and its settings after a comma or a colon.
bool is_torch(std::string_view text) {
  if (!text.starts_with(kTorchStrategy)) return false;
  const std::string_view rest = text.substr(kTorchStrategy.size());
  return rest.empty() || rest.front() == ',' || rest.front() == ':';
}

std::string_view after_name(std::string_view torch) {
  return torch.substr(std::min(torch.size(), kTorchStrategy.size() + 1));
}

}  // namespace

std::span<const StrategyModifier> strategy_modifiers() {
  return kModifiers;
}

StrategySettings parse_strategy(std::string_view text) {
  const auto [base, modifiers] = split(text, '+');
  StrategySettings settings = is_torch(base) ? parse_torch_settings(after_name(base)) : parse_base(base);
  for (std::optional<std::string_view> rest = modifiers; rest;) {
    const auto [modifier, next] = split(*rest, '+');
    apply_modifier(modifier, settings);
    rest = next;
  }
  return settings;
}

}  // namespace headroom
