#include "allocators/strategies/strategy_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/text.h"

namespace headroom {

void StrategyOptions::add(std::string_view key, std::string_view value) {
  if (text(key)) throw InvalidArgument(fmt::format("{} is given twice", key));
  given_.emplace_back(key, value);
}

void StrategyOptions::require_known(std::string_view strategy, std::span<const StrategyOption> known) const {
  std::vector<std::string_view> keys;
  for (const StrategyOption& option : known) keys.push_back(option.key);
  for (const auto& [key, value] : given_) {
    if (std::ranges::find(keys, key) != keys.end()) continue;
    throw InvalidArgument(keys.empty() ? fmt::format("strategy {} has no options, so no '{}'", strategy, key)
                                       : fmt::format("strategy {} has no option '{}': it has {}", strategy,
                                                     key, list_with_suggestion(key, keys)));
  }
}

std::string StrategyOptions::all() const {
  std::string result;
  for (const auto& [key, value] : given_) {
    result += fmt::format("{}{}={}", result.empty() ? "" : ",", key, value);
  }
  return result;
}

std::optional<std::string_view> StrategyOptions::text(std::string_view key) const {
  for (const auto& [given, value] : given_) {
    if (given == key) return value;
  }
  return {};
}

std::optional<int64_t> StrategyOptions::bytes(std::string_view key) const {
  const auto value = text(key);
  if (!value) return {};
  const int64_t bytes = parse_bytes(*value, key);
  if (bytes < 1) throw InvalidArgument(fmt::format("{} is {}: it must be at least one byte", key, *value));
  return bytes;
}

std::optional<double> StrategyOptions::share(std::string_view key) const {
  const auto value = text(key);
  return value ? std::optional(parse_share(*value, key)) : std::nullopt;
}

std::optional<bool> StrategyOptions::flag(std::string_view key) const {
  const auto value = text(key);
  if (!value) return {};
  if (*value != "true" && *value != "false") {
    throw InvalidArgument(fmt::format("{} is '{}': it must be true or false", key, *value));
  }
  return *value == "true";
}

std::optional<int64_t> StrategyOptions::count(std::string_view key, int64_t low, int64_t high) const {
  const auto value = text(key);
  if (!value) return {};
  const auto number = parse_number<int64_t>(*value);
  if (!number || *number < low || *number > high) {
    throw InvalidArgument(
        fmt::format("{} is '{}': it must be a whole number from {} to {}", key, *value, low, high));
  }
  return number;
}

double parse_share(std::string_view text, std::string_view what, bool may_be_all) {
  const double share = parse_number<double>(text).value_or(0);
  if (!(share > 0 && share <= 1) || (share == 1 && !may_be_all)) {
    throw InvalidArgument(fmt::format("{} is '{}': it must be a number above 0 and {} 1", what, text,
                                      may_be_all ? "at most" : "below"));
  }
  return share;
}

}  // namespace headroom
