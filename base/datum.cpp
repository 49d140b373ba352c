#include "base/datum.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/errors.h"
#include "base/text.h"

namespace headroom {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxLevels = 1000;

struct Form {
  int indent;
  NotUtf8 bytes;
};

// Appends the JSON of a value; `level` is -1 in one line.
void append_json(const Datum& value, const Form& form, int level, std::string& text) {
  const auto line = [&](int at) {
    if (level >= 0) text.append("\n").append(static_cast<size_t>(form.indent * at), ' ');
  };
  const int inner = level < 0 ? level : level + 1;
  std::visit(
      [&](const auto& data) {
        using Data = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<Data, std::monostate>) {
          text += "null";
        } else if constexpr (std::is_same_v<Data, List> || std::is_same_v<Data, Record>) {
          constexpr bool kIsList = std::is_same_v<Data, List>;
          text += kIsList ? '[' : '{';
          for (size_t i = 0; i < data.size(); ++i) {
            if (i > 0) text += ',';
            line(inner);
            if constexpr (kIsList) {
              append_json(data[i], form, inner, text);
            } else {
              append_json(data[i].key, form, inner, text);
              text += level < 0 ? ":" : ": ";
              append_json(data[i].value, form, inner, text);
            }
          }
          if (!data.empty()) line(level);
          text += kIsList ? ']' : '}';
        } else if constexpr (std::is_same_v<Data, int64_t>) {
          fmt::format_to(std::back_inserter(text), "{}", data);
        } else {
          text += Json(data).dump(-1, ' ', false,
                                  form.bytes == NotUtf8::kRefuse ? Json::error_handler_t::strict
                                                                 : Json::error_handler_t::replace);
        }
      },
      value.data());
}

// Builds the value of a text.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Datum result;
  std::string error;

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override {
    return value > uint64_t{std::numeric_limits<int64_t>::max()} ? add(static_cast<double>(value))
                                                                 : add(value);
  }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Record()); }
  bool start_array(size_t) override { return open(List()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& key) override {
    std::get<Record>(levels_.back()).push_back({std::move(key), {}});
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception& exception) override {
    error = exception.what();
    return false;
  }

 private:
  using Level = std::variant<List, Record>;

  bool add(Datum value) {
    if (levels_.empty()) {
      result = std::move(value);
    } else if (List* list = std::get_if<List>(&levels_.back())) {
      list->push_back(std::move(value));
    } else {
      std::get<Record>(levels_.back()).back().value = std::move(value);
    }
    return true;
  }
  bool open(Level level) {
    if (levels_.size() == kMaxLevels) error = fmt::format("more than {} levels", kMaxLevels);
    levels_.push_back(std::move(level));
    return levels_.size() <= kMaxLevels;
  }
  bool close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    return std::visit([this](auto& values) { return add(std::move(values)); }, level);
  }

  std::vector<Level> levels_;
};

}  // namespace

std::optional<double> Datum::number() const {
  if (const auto* integer = std::get_if<int64_t>(&data_)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&data_)) return *real;
  return std::nullopt;
}

const List& Datum::list() const {
  static const List none;
  const auto* list = std::get_if<List>(&data_);
  return list != nullptr ? *list : none;
}

const Record& Datum::record() const {
  static const Record none;
  const auto* record = std::get_if<Record>(&data_);
  return record != nullptr ? *record : none;
}

const Datum& Datum::operator[](std::string_view key) const {
  static const Datum none;
  const Record& fields = record();
  const auto found = std::ranges::find(fields.rbegin(), fields.rend(), key, &Field::key);
  return found == fields.rend() ? none : found->value;
}

std::string to_json(const Datum& value, int indent, NotUtf8 bytes) {
  std::string text;
  try {
    append_json(value, {indent, bytes}, indent < 0 ? -1 : 0, text);
  } catch (const Json::exception& error) {
    throw InvalidArgument(error.what());
  }
  return escaped_json(text);
}

Datum parse_json(std::string_view text) {
  Builder builder;
  if (!Json::sax_parse(text, &builder)) throw InvalidArgument(fmt::format("not JSON: {}", builder.error));
  return std::move(builder.result);
}

}  // namespace headroom
