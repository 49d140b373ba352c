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

// One option that a strategy has, as users see it.
struct StrategyOption {
  std::string_view key;
  std::string_view value;     // what is given: "SIZE", "SHARE", "COUNT", "LIST"
  std::string_view standard;  // without it; "none" where it is off
  std::string_view summary;
};

// The ones that were given. Values are read by the strategy that has them.
class StrategyOptions {
 public:
  // Throws InvalidArgument when the key was given before.
  void add(std::string_view key, std::string_view value);
  bool empty() const { return given_.empty(); }
  // Throws InvalidArgument for a key that `known` has not, naming the strategy and the nearest known.
  void require_known(std::string_view strategy, std::span<const StrategyOption> known) const;

  // "key=value,key=value", as they were given.
  std::string all() const;
  // Nothing when the key was not given. Throw InvalidArgument naming the key when the value is no size of at
  // least one byte, no share in (0, 1], no whole number in [low, high].
  std::optional<int64_t> bytes(std::string_view key) const;
  std::optional<double> share(std::string_view key) const;
  std::optional<int64_t> count(std::string_view key, int64_t low, int64_t high) const;
  std::optional<std::string_view> text(std::string_view key) const;

 private:
  std::vector<std::pair<std::string, std::string>> given_;
};

// A share in (0, 1] from text such as "0.8". Throws InvalidArgument naming `what`.
double parse_share(std::string_view text, std::string_view what);

}  // namespace headroom
