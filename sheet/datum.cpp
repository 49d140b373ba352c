#include "sheet/datum.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/errors.h"
#include "base/text.h"

namespace headroom {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Datum& value) {
  return std::visit(
      [](const auto& data) -> Json {
        using Data = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<Data, std::monostate>) {
          return {};
        } else if constexpr (std::is_same_v<Data, List>) {
          Json list = Json::array();
          for (const Datum& element : data) list.push_back(json_of(element));
          return list;
        } else if constexpr (std::is_same_v<Data, Record>) {
          Json record = Json::object();
          for (const Field& field : data) record[field.key] = json_of(field.value);
          return record;
        } else {
          return data;
        }
      },
      value.data());
}

Datum value_of(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    List list;
    for (const Json& element : json) list.push_back(value_of(element));
    return list;
  }
  if (!json.is_object()) return {};
  Record record;
  for (const auto& [key, element] : json.items()) record.push_back({key, value_of(element)});
  return record;
}

}  // namespace

std::optional<double> Datum::number() const {
  if (const auto* integer = std::get_if<int64_t>(&data_)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&data_)) return *real;
  return std::nullopt;
}

std::string to_json(const Datum& value, int indent) {
  return json_text(json_of(value), indent);
}

Datum parse_json(std::string_view text) {
  try {
    return value_of(Json::parse(text));
  } catch (const Json::exception& error) {
    throw InvalidArgument(fmt::format("not JSON: {}", error.what()));
  }
}

}  // namespace headroom
