// A value in an answer: null, a truth, a number, a text, a list or a record; and its JSON. Knows no answer.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
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
  Datum(const std::vector<std::string>& texts);
  template <typename T>
  Datum(const std::optional<T>& value) {
    if (value) *this = Datum(*value);
  }

  const Data& data() const { return data_; }
  bool is_null() const { return std::holds_alternative<std::monostate>(data_); }
  // The value of an integer or a double; nothing for others.
  std::optional<double> number() const;

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
inline Datum::Datum(const std::vector<std::string>& texts) : data_(List(texts.begin(), texts.end())) {}
inline void Datum::set(bool value) { data_ = value; }
inline void Datum::set(int64_t value) { data_ = value; }
inline void Datum::set(double value) { data_ = value; }

// JSON with `indent` blanks for each level; below 0 in one line. Replaces bytes that are not UTF-8.
std::string to_json(const Datum& value, int indent = 2);
// The value of a JSON text. Throws InvalidArgument where it is none.
Datum parse_json(std::string_view text);

}  // namespace headroom
