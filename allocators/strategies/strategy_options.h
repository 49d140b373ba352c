// The options of one strategy: "max_split=128MiB,gc=0.8". Knows no strategy.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headroom {

// One option of a strategy.
struct StrategyOption {
  std::string_view key;
  std::string_view value;          // "SIZE", "SHARE", "COUNT", "LIST"
  std::string_view default_value;  // "none" if it is off
  std::string_view summary;
};

// The options that were given; the strategy reads the values.
class StrategyOptions {
 public:
  // Throws InvalidArgument when the key was given before.
  void add(std::string_view key, std::string_view value);
  bool empty() const { return given_.empty(); }
  // Throws InvalidArgument for a key that is not in `known`, with the nearest known one.
  void require_known(std::string_view strategy, std::span<const StrategyOption> known) const;

  // "key=value,key=value", as given.
  std::string all() const;
  // Return nullopt if the key was not given. Throw InvalidArgument with the key unless the value is a size of
  // at least one byte, a share in (0, 1], or a whole number in [low, high].
  std::optional<int64_t> bytes(std::string_view key) const;
  std::optional<double> share(std::string_view key) const;
  // "true" or "false".
  std::optional<bool> flag(std::string_view key) const;
  std::optional<int64_t> count(std::string_view key, int64_t low, int64_t high) const;
  std::optional<std::string_view> text(std::string_view key) const;

 private:
  std::vector<std::pair<std::string, std::string>> given_;
};

// Parses a share in (0, 1], or (0, 1), from text such as "0.8". Throws InvalidArgument naming it as `what`.
double parse_share(std::string_view text, std::string_view what, bool may_be_all = true);

}  // namespace headroom
