// Enums that people read and write by name. One array per enum has the names; options, help, JSON and tests
// take them from it.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/errors.h"
#include "base/text.h"

namespace headroom {

// An enum declares beside it the names of its values 0, 1, ... in order:
//   constexpr auto value_names(Color) {
//     return std::to_array<std::string_view>({"red", "green"});
//   }
template <typename E>
concept NamedEnum = requires {
  value_names(E{}).size();
};

template <NamedEnum E>
inline constexpr auto kEnumNames = value_names(E{});

template <NamedEnum E>
constexpr std::span<const std::string_view> enum_names() {
  return kEnumNames<E>;
}

template <NamedEnum E>
constexpr auto enum_values() {
  std::array<E, kEnumNames<E>.size()> values{};
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<E>(i);
  return values;
}

template <NamedEnum E>
constexpr std::string_view to_string(E value) {
  return kEnumNames<E>[static_cast<size_t>(value)];
}

// Throws InvalidArgument, naming `what` and the nearest name, for any other text.
template <NamedEnum E>
E parse_enum(std::string_view text, std::string_view what) {
  for (const E value : enum_values<E>()) {
    if (to_string(value) == text) return value;
  }
  throw InvalidArgument(std::string(what) + ": unknown value '" + std::string(text) +
                        "'; known: " + list_with_suggestion(text, enum_names<E>()));
}

}  // namespace headroom
