#include "allocators/strategies/torch_settings.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "allocators/strategies/caching_rules.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "base/text.h"

namespace headroom {
namespace {

constexpr std::string_view kNative = "native", kAsync = "cudaMallocAsync";

// The value of a whole number of MiB, `least` or more, as a size.
std::string mebibytes(std::string_view text, std::string_view key, int64_t least = 1) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const auto number = parse_number<int64_t>(text);
  if (!number || *number < least || *number > kMost) {
    throw InvalidArgument(
        fmt::format("{} is '{}': it must be a whole number of MiB from {} to {}", key, text, least, kMost));
  }
  return fmt::format("{}MiB", *number);
}

bool is_true(std::string_view text, std::string_view key) {
  if (text != "True" && text != "False") {
    throw InvalidArgument(fmt::format("{} is '{}': it must be True or False", key, text));
  }
  return text == "True";
}

constexpr TorchSetting kSettings[] = {
    {"backend", "native|cudaMallocAsync",
     [](std::string_view value, StrategySettings& settings) {
       if (value != kNative && value != kAsync) {
         throw InvalidArgument(fmt::format("backend is '{}': it must be {} or {}", value, kNative, kAsync));
       }
       if (value == kAsync) settings.name = "stream-ordered";
     }},
    {"expandable_segments", "True|False",
     [](std::string_view value, StrategySettings& settings) {
       settings.options.add("expandable_segments", is_true(value, "expandable_segments") ? "true" : "false");
     }},
    {"max_split_size_mb", "MIB",
     [](std::string_view value, StrategySettings& settings) {
       // PyTorch's own bound, see caching_rules().
       constexpr int64_t kLeast = CachingRules{}.large_segment_bytes / kMiB;
       settings.options.add("max_split", mebibytes(value, "max_split_size_mb", kLeast));
     }},
    {"max_non_split_rounding_mb", "MIB",
     [](std::string_view value, StrategySettings& settings) {
       settings.options.add("max_non_split_rounding", mebibytes(value, "max_non_split_rounding_mb"));
     }},
    {"large_segment_size_mb", "MIB",
     [](std::string_view value, StrategySettings& settings) {
       settings.options.add("large_segment", mebibytes(value, "large_segment_size_mb"));
     }},
    {"roundup_power2_divisions", "COUNT|LIST",
     [](std::string_view value, StrategySettings& settings) {
       if (value == "0")
         throw InvalidArgument("roundup_power2_divisions is '0': PyTorch takes powers of two");
       parse_power2_divisions(value, "roundup_power2_divisions");
       settings.options.add("roundup_power2", value);
     }},
    {"garbage_collection_threshold", "SHARE",
     [](std::string_view value, StrategySettings& settings) {
       parse_share(value, "garbage_collection_threshold", false);
       settings.options.add("gc", value);
     }},
    {"per_process_memory_fraction", "SHARE",
     [](std::string_view value, StrategySettings& settings) {
       settings.memory_fraction = parse_share(value, "per_process_memory_fraction");
     }},
    // Pinned memory is the host's; the others change when the driver is called, not for how much.
    {"pinned_use_cuda_host_register", "True|False", nullptr},
    {"pinned_num_register_threads", "COUNT", nullptr},
    {"pinned_use_background_threads", "True|False", nullptr},
    {"pinned_reserve_segment_size_mb", "MIB", nullptr},
    {"pinned_free_catch_all", "True|False", nullptr},
    {"pinned_max_cached_size_mb", "MIB", nullptr},
    {"pinned_max_round_threshold_mb", "MIB", nullptr},
    {"release_lock_on_cudamalloc", "True|False", nullptr},
    {"graph_capture_record_stream_reuse", "True|False", nullptr},
    {"throw_on_cudamalloc_oom", "True|False", nullptr},
};

const TorchSetting& find_torch_setting(std::string_view key) {
  std::vector<std::string_view> known;
  for (const TorchSetting& setting : kSettings) {
    if (setting.key == key) return setting;
    known.push_back(setting.key);
  }
  throw InvalidArgument(
      fmt::format("PyTorch has no setting '{}': it has {}", key, list_with_suggestion(key, known)));
}

// The end of the item that begins at `begin`: a comma outside of brackets, or the end of the text.
size_t end_of_item(std::string_view text, size_t begin) {
  int depth = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    if (text[at] == '[') ++depth;
    if (text[at] == ']') --depth;
    if (text[at] == ',' && depth <= 0) return at;
  }
  return text.size();
}

}  // namespace

std::span<const TorchSetting> torch_settings() {
  return kSettings;
}

StrategySettings parse_torch_settings(std::string_view text) {
  std::string plain(text);
  std::erase(plain, ' ');  // as PyTorch does
  StrategySettings settings;
  settings.name = "caching";
  settings.title = kTorchStrategy;
  std::vector<std::pair<const TorchSetting*, std::string_view>> asked;
  for (size_t begin = 0; begin < plain.size();) {
    const size_t end = end_of_item(plain, begin);
    const std::string_view item = std::string_view(plain).substr(begin, end - begin);
    begin = end + 1;
    if (item.empty()) continue;
    const size_t colon = item.find(':');
    const TorchSetting& setting = find_torch_setting(item.substr(0, colon));
    if (colon == std::string_view::npos || colon + 1 == item.size()) {
      throw InvalidArgument(fmt::format("{} has no value: {}:{}", setting.key, setting.key, setting.value));
    }
    std::erase_if(asked,
                  [&](const auto& before) { return before.first == &setting; });  // the last one counts
    asked.emplace_back(&setting, item.substr(colon + 1));
  }
  for (const auto& [setting, value] : asked) {
    if (setting->apply != nullptr) setting->apply(value, settings);
  }
  if (settings.name == "caching") {
    caching_rules(settings.options);  // refuses values out of range now
  } else {
    settings.options = {};
  }
  return settings;
}

}  // namespace headroom
