// Strategies as text: "caching:max_split=128MiB,gc=0.8+limit=4GiB". Knows no command line.
#pragma once

#include <span>
#include <string_view>

#include "allocators/strategies/strategy.h"

namespace headroom {

// NAME[=VALUE][:KEY=VALUE[,KEY=VALUE...]][+MODIFIER[=VALUE]...]. VALUE is the strategy's limit, or for the
// name "plugin" the path of a shared library. Or pytorch[,KEY:VALUE...][+MODIFIER[=VALUE]...], see
// parse_torch_settings. Throws InvalidArgument for unknown names and keys (with the
// nearest known one), malformed values, and repetitions.
StrategySettings parse_strategy(std::string_view text);

// A setting that follows a '+' and works with every strategy.
struct StrategyModifier {
  std::string_view name;
  std::string_view value;  // "SIZE", "SHARE", "PATH"; empty where there is none
  std::string_view summary;
  void (*apply)(std::string_view value, StrategySettings& settings);
};
std::span<const StrategyModifier> strategy_modifiers();

}  // namespace headroom
