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

const Datum* Facts::find(std::string_view name) const {
  if (const auto* record = std::get_if<Record>(&value_.data())) {
    for (const Field& field : *record) {
      if (field.key == name) return &field.value;
    }
  }
  return nullptr;
}

template <typename T>
const T* Facts::find_as(std::string_view name) const {
  const Datum* found = find(name);
  return found == nullptr ? nullptr : std::get_if<T>(&found->data());
}

Facts Facts::part(std::string_view name) const {
  const Datum* found = find(name);
  return found == nullptr ? Facts() : Facts(*found);
}

std::vector<Facts> Facts::parts(std::string_view name) const {
  const List* list = find_as<List>(name);
  return list == nullptr ? std::vector<Facts>() : std::vector<Facts>(list->begin(), list->end());
}

std::string Facts::text() const {
  constexpr size_t kLongest = 300;
  const auto* text = std::get_if<std::string>(&value_.data());
  return text == nullptr ? "" : printable(*text, kLongest);
}

int64_t Facts::number(std::string_view name) const {
  const auto* number = find_as<int64_t>(name);
  return number == nullptr ? 0 : std::clamp<int64_t>(*number, 0, int64_t{1} << 60);
}

bool Facts::is_set(std::string_view name) const {
  const auto* value = find_as<bool>(name);
  return value != nullptr && *value;
}

}  // namespace headroom
