#include "base/bytes.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>

#include "base/errors.h"
#include "base/text.h"

namespace headroom {
namespace {

[[noreturn]] void refuse(std::string_view text, std::string_view what, std::string_view why) {
  throw InvalidArgument(fmt::format("{}: '{}' is not a size: {} (examples: 1048576, 64KiB, 512MiB, 1.5GiB)",
                                    what, printable(text, 80), why));
}

double unit_of(std::string_view text) {
  const std::string unit = lowered(text);
  if (unit.empty() || unit == "b") return 1;
  constexpr std::string_view kPrefixes = "kmgt";
  const size_t power = kPrefixes.find(unit[0]);
  if (power == std::string_view::npos) return 0;
  const std::string_view rest = std::string_view(unit).substr(1);
  if (rest.empty() || rest == "ib") return std::pow(1024.0, static_cast<double>(power + 1));
  if (rest == "b") return std::pow(1000.0, static_cast<double>(power + 1));
  return 0;
}

}  // namespace

int64_t parse_bytes(std::string_view text, std::string_view what) {
  const std::string_view body = trimmed(text);
  if (body.empty()) refuse(text, what, "it is empty");
  if (body[0] == '-') refuse(text, what, "it is negative");
  double number = 0;
  const auto [end, error] =
      std::from_chars(body.data(), body.data() + body.size(), number, std::chars_format::fixed);
  if (error != std::errc() || end == body.data() || !std::isfinite(number)) {
    refuse(text, what, "it does not start with a number");
  }
  const std::string_view unit = trimmed(body.substr(static_cast<size_t>(end - body.data())));
  const double factor = unit_of(unit);
  if (factor == 0) refuse(text, what, fmt::format("unknown unit '{}'", printable(unit, 80)));
  const double bytes = number * factor;
  if (!(bytes < std::ldexp(1.0, 60))) refuse(text, what, "it is too large");
  if (bytes != std::floor(bytes)) {
    if (factor == 1) refuse(text, what, "it has a fraction of a byte");
    return static_cast<int64_t>(bytes);  // 1.3GiB is not a whole number of bytes: round down
  }
  return static_cast<int64_t>(bytes);
}

std::string format_bytes(int64_t bytes) {
  constexpr std::array<std::string_view, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  if (std::abs(value) < 1024) return fmt::format("{} B", bytes);
  size_t unit = 0;
  value /= 1024;
  while (std::abs(value) >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string exact_size(int64_t bytes) {
  constexpr std::array<std::string_view, 4> kUnits = {"", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

std::string format_mib(int64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / static_cast<double>(kMiB));
}

}  // namespace headroom
