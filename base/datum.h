// A value of JSON: null, a truth, a number, a text, a list or a record. The one place that reads and writes
// JSON: the library behind it takes seconds to compile.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace headroom {

class Datum;
struct Field;
using List = std::vector<Datum>;
using Record = std::vector<Field>;  // keeps its order

class Datum {
 public:
  using Data = std::variant<std::monostate, bool, int64_t, double, std::string, List, Record>;

  Datum() = default;  // null
  template <typename T>
  requires std::integral<T> || std::floating_point<T> Datum(T number) {
    if constexpr (std::same_as<T, bool>) {
      set(number);
    } else if constexpr (std::integral<T>) {
      set(static_cast<int64_t>(number));
    } else {
      set(static_cast<double>(number));
    }
  }
  // These, and set(), are defined below, where a Field is complete.
  Datum(std::string text);
  Datum(std::string_view text);
  Datum(const char* text);
  Datum(List list);
  Datum(Record record);
  // A list of values.
  template <std::ranges::contiguous_range Range>
  requires(!std::convertible_to<const Range&, std::string_view>) Datum(const Range& values)
      : Datum(List(std::ranges::begin(values), std::ranges::end(values))) {}
  template <typename T>
  Datum(const std::optional<T>& value) {
    if (value) *this = Datum(*value);
  }

  const Data& data() const { return data_; }
  bool is_null() const { return std::holds_alternative<std::monostate>(data_); }
  // The value of an integer or a double; nothing for others.
  std::optional<double> number() const;
  // The list or the record; empty for others.
  const List& list() const;
  const Record& record() const;
  // The last value of that key of a record; null where there is none.
  const Datum& operator[](std::string_view key) const;
  // The value of that type, or `other`.
  template <typename T>
  T value_or(T other) const {
    const T* value = std::get_if<T>(&data_);
    return value != nullptr ? *value : std::move(other);
  }

 private:
  void set(bool value);
  void set(int64_t value);
  void set(double value);

  Data data_;
};

struct Field {
  std::string key;
  Datum value;
};

inline Datum::Datum(std::string text) : data_(std::move(text)) {}
inline Datum::Datum(std::string_view text) : data_(std::string(text)) {}
inline Datum::Datum(const char* text) : data_(std::string(text)) {}
inline Datum::Datum(List list) : data_(std::move(list)) {}
inline Datum::Datum(Record record) : data_(std::move(record)) {}
inline void Datum::set(bool value) {
  data_ = value;
}
inline void Datum::set(int64_t value) {
  data_ = value;
}
inline void Datum::set(double value) {
  data_ = value;
}

// Says how bytes that are not UTF-8 are written.
enum class NotUtf8 : uint8_t { kReplace, kRefuse };

// JSON with `indent` blanks for each level; below 0 in one line. Escapes what printable() does. Throws
// InvalidArgument for bytes that are to be refused.
std::string to_json(const Datum& value, int indent = 2, NotUtf8 bytes = NotUtf8::kReplace);
// The value of a JSON text, whose records keep the order of their keys and keys that appear again. A whole
// number beyond 64 bits is a double. Throws InvalidArgument where it is none, or nests beyond 1,000 levels.
Datum parse_json(std::string_view text);

}  // namespace headroom
