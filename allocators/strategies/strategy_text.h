// Strategies as text: "caching:max_split=128MiB,gc=0.8+limit=4GiB". Knows which words there are from the
// arrays of strategies and modifiers, and no command line.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "allocators/strategies/strategy.h"

namespace headroom {

// ELEMENT[+ELEMENT...] with ELEMENT = NAME[=VALUE][:KEY=VALUE[,KEY=VALUE...]]. The first names the strategy,
// whose VALUE is its limit, or with the name "plugin" the path of a shared library; each other one is a
// modifier, below. Throws InvalidArgument naming the element for unknown names and keys (with the nearest
// known), malformed values, and what is said twice.
StrategySettings parse_strategy(std::string_view text);

// What can stand behind a '+': a setting that every strategy takes.
struct StrategyModifier {
  std::string_view name;
  std::string_view value;  // "SIZE", "SHARE", "PATH"; empty where there is none
  std::string_view summary;
  void (*apply)(std::string_view value, StrategySettings& settings);
};
std::span<const StrategyModifier> strategy_modifiers();

}  // namespace headroom
