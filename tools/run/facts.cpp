#include "tools/run/facts.h"

#include <algorithm>
#include <cstddef>
#include <variant>

#include "base/errors.h"
#include "base/text.h"

namespace headroom {
Facts Facts::parse(std::string_view json) {
  try {
    return Facts(parse_json(json));
  } catch (const InvalidArgument&) {
    return {};
  }
}

const Datum& Facts::at(std::string_view name) const {
  static const Datum kNothing;
  if (const auto* record = std::get_if<Record>(&value_.data())) {
    for (const Field& field : *record) {
      if (field.key == name) return field.value;
    }
  }
  return kNothing;
}

std::vector<Facts> Facts::parts(std::string_view name) const {
  const auto* list = std::get_if<List>(&at(name).data());
  return list == nullptr ? std::vector<Facts>() : std::vector<Facts>(list->begin(), list->end());
}

std::string Facts::text() const {
  constexpr size_t kLongest = 300;
  const auto* text = std::get_if<std::string>(&value_.data());
  return text == nullptr ? "" : printable(*text, kLongest);
}

int64_t Facts::number(std::string_view name) const {
  const auto* number = std::get_if<int64_t>(&at(name).data());
  return number == nullptr ? 0 : std::clamp<int64_t>(*number, 0, int64_t{1} << 60);
}

bool Facts::is_set(std::string_view name) const {
  const auto* value = std::get_if<bool>(&at(name).data());
  return value != nullptr && *value;
}

}  // namespace headroom
