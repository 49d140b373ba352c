#include "tools/explain/number_pair.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "tools/explain/characters.h"

namespace headroom::explain {
namespace {

constexpr size_t kNear = 100;  // characters between a comparison and its numbers
constexpr size_t kLongestName = 48;
constexpr size_t kLongestCompared = 2000;

enum class Order {
  kAskedFirst,  // "64 is greater than 16"
  kMostFirst,   // "16 is smaller than the required 64"
  kMostAlone,   // "at most 16", with 64 before or after it
};

struct Comparison {
  std::string_view words;
  Order order;
};
// "Required pages: 6, Available pages: 2": without a request before it, it compares nothing.
constexpr std::string_view kAvailable = "vailable ";  // with or without a capital

// Longer words first: a part of them may mean something else.
constexpr Comparison kComparisons[] = {
    {"is smaller than the required", Order::kMostFirst},
    {"is less than the required", Order::kMostFirst},
    {"smaller than the required", Order::kMostFirst},
    {"is not enough for", Order::kMostFirst},
    {"is too small for", Order::kMostFirst},
    {"not sufficient for", Order::kMostFirst},
    {"insufficient for", Order::kMostFirst},
    {"is smaller than", Order::kMostFirst},
    {"is lower than", Order::kMostFirst},
    {"is less than", Order::kMostFirst},
    {"must be less than or equal to", Order::kMostAlone},
    {"should be less than or equal to", Order::kMostAlone},
    {"must be smaller than", Order::kMostAlone},
    {"must be less than", Order::kMostAlone},
    {"must be at most", Order::kMostAlone},
    {"must not exceed", Order::kMostAlone},
    {"cannot exceed", Order::kMostAlone},
    {"must be <=", Order::kMostAlone},
    {"should be <=", Order::kMostAlone},
    {"is limited to", Order::kMostAlone},
    {"but the maximum is", Order::kMostAlone},
    {"but the limit is", Order::kMostAlone},
    {"but only", Order::kMostAlone},
    {"but max", Order::kMostAlone},
    {"length is", Order::kMostAlone},
    {"maximum is", Order::kMostAlone},
    {"maximum of", Order::kMostAlone},
    {"limit is", Order::kMostAlone},
    {"limit of", Order::kMostAlone},
    {"ardware limit", Order::kMostAlone},
    {"device allows", Order::kMostAlone},
    {"available: ", Order::kMostAlone},
    {"available = ", Order::kMostAlone},
    {kAvailable, Order::kMostAlone},
    {"limit: ", Order::kMostAlone},
    {"max: ", Order::kMostAlone},
    {"cannot be larger than", Order::kAskedFirst},
    {"cannot be greater than", Order::kAskedFirst},
    {"is greater than", Order::kAskedFirst},
    {"is larger than", Order::kAskedFirst},
    {"is longer than", Order::kAskedFirst},
    {"is higher than", Order::kAskedFirst},
    {"is bigger than", Order::kAskedFirst},
    {"greater than", Order::kAskedFirst},
    {"larger than", Order::kAskedFirst},
    {"longer than", Order::kAskedFirst},
    {"bigger than", Order::kAskedFirst},
    {"more than", Order::kAskedFirst},
    {"exceeding", Order::kAskedFirst},
    {"exceeds", Order::kAskedFirst},
    {"exceeded", Order::kAskedFirst},
    {"exceed", Order::kAskedFirst},
    {"does not fit in", Order::kAskedFirst},
};

struct Number {
  double value = 0;
  bool is_size = false;
  size_t begin = 0, end = 0;
};

// 1 for "bytes", 2^30 for "GiB" and "GB"; 0 for no unit.
double unit_at(std::string_view text, size_t at, size_t& end) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"bytes", 1},          {"Bytes", 1},
                                                            {"GiB", 1073741824.0}, {"MiB", 1048576.0},
                                                            {"KiB", 1024.0},       {"TiB", 1099511627776.0},
                                                            {"GB", 1073741824.0},  {"MB", 1048576.0},
                                                            {"KB", 1024.0},        {"B", 1}};
  for (const auto& [word, bytes] : kUnits) {
    if (!text.substr(at).starts_with(word)) continue;
    end = at + word.size();
    if (end == text.size() || !is_word_character(text[end])) return bytes;
  }
  return 0;
}

// A whole number, or one with a unit; not a part of a word, a path, a version or a time.
std::optional<Number> number_at(std::string_view text, size_t begin) {
  if (begin > 0) {
    const char before = text[begin - 1];
    if (is_word_character(before) || std::string_view("./-:#").find(before) != std::string_view::npos)
      return std::nullopt;
  }
  size_t at = begin;
  double value = 0, place = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    const bool digit_follows = at + 1 < text.size() && is_digit(text[at + 1]);
    if (is_digit(c)) {
      value = place == 0 ? value * 10 + (c - '0') : value + place * (c - '0');
      place /= 10;
    } else if (c == '.' && place == 0 && digit_follows) {
      place = 0.1;
    } else if (c != ',' || !digit_follows || place > 0) {
      break;
    }
  }
  Number number{value, false, begin, at};
  size_t unit_begin = at;
  if (unit_begin < text.size() && text[unit_begin] == ' ') ++unit_begin;
  if (const double bytes = unit_at(text, unit_begin, number.end); bytes > 0) {
    number.value *= bytes;
    number.is_size = true;
    return number;
  }
  number.end = at;
  const bool is_whole = std::floor(value) == value;
  if (!is_whole || value >= 9e18) return std::nullopt;
  if (at < text.size() && (is_word_character(text[at]) || text[at] == '%' || text[at] == '/'))
    return std::nullopt;
  return number;
}

std::optional<Number> first_number(std::string_view text, size_t from, size_t until) {
  for (size_t at = from; at < std::min(until, text.size()); ++at) {
    if (!is_digit(text[at]) || (at > from && is_digit(text[at - 1]))) continue;
    if (const auto number = number_at(text, at)) return number;
  }
  return std::nullopt;
}

std::optional<Number> last_number(std::string_view text, size_t from, size_t until) {
  std::optional<Number> last;
  for (size_t at = from; at < until;) {
    const auto number = first_number(text, at, until);
    if (!number || number->end > until) break;
    last = number;
    at = number->end;
  }
  return last;
}

bool is_setting(std::string_view word) {
  const bool is_option = word.starts_with("--");
  if (!is_option && word.find('_') == std::string_view::npos) return false;
  return std::ranges::all_of(word, [](char c) { return is_word_character(c) || c == '-'; });
}

std::string_view without_marks(std::string_view word) {
  constexpr std::string_view kMarks = " `'\"()[]{}=:,.<";
  while (!word.empty() && kMarks.find(word.front()) != std::string_view::npos) word.remove_prefix(1);
  while (!word.empty() && kMarks.find(word.back()) != std::string_view::npos) word.remove_suffix(1);
  return word;
}

// Says what a number counts, by the words before it: a setting's name if one is among them.
std::string counted_name(std::string_view words) {
  for (size_t end = words.size(); end > 0;) {
    const size_t blank = words.find_last_of(' ', end - 1);
    const size_t begin = blank == std::string_view::npos ? 0 : blank + 1;
    const std::string_view word = without_marks(words.substr(begin, end - begin));
    if (is_setting(word)) return std::string(word);
    if (begin == 0) break;
    end = begin - 1;
  }
  for (const std::string_view stop : {": ", ". ", ", ", "; ", "\""}) {
    const size_t at = words.rfind(stop, words.size() - std::min<size_t>(words.size(), stop.size() + 1));
    if (at != std::string_view::npos) words.remove_prefix(at + stop.size());
  }
  words = without_marks(words);
  for (bool changed = true; changed;) {
    changed = false;
    for (const std::string_view lead : {"the ", "a ", "of ", "this ", "model's ", "your ", "that "}) {
      if (!words.starts_with(lead)) continue;
      words.remove_prefix(lead.size());
      changed = true;
    }
  }
  for (const std::string_view tail : {" of", " is", " are", " has", " was", " to", " at", " than"}) {
    if (words.ends_with(tail)) words.remove_suffix(tail.size());
  }
  const bool has_letter = std::ranges::any_of(words, [](char c) { return is_letter(c) && c != '_'; });
  return has_letter && words.size() <= kLongestName ? std::string(words) : std::string();
}

bool names_request(std::string_view words) {
  for (const std::string_view word : {"equired", "equires", "equested", "eeded", "needs"}) {
    if (words.find(word) != std::string_view::npos) return true;
  }
  return false;
}

// A line that only warns has none of these.
bool says_error(std::string_view line) {
  for (const std::string_view word :
       {"rror", "RROR", "xception", "FATAL", "atal:", "ailed", "panic", "ssert", "EXHAUSTED"}) {
    if (line.find(word) != std::string_view::npos) return true;
  }
  return false;
}

std::optional<NumberPair> pair_at(std::string_view line, size_t at, const Comparison& comparison) {
  const size_t behind = at + comparison.words.size();
  const size_t first = at - std::min(at, kNear);
  if (comparison.words == kAvailable && !names_request(line.substr(first, at - first))) return std::nullopt;
  const auto before = last_number(line, first, at), after = first_number(line, behind, behind + kNear);
  std::optional<Number> asked = before, most = after;
  size_t asked_begin = first, most_begin = behind;
  if (comparison.order == Order::kMostFirst) {
    std::swap(asked, most);
    std::swap(asked_begin, most_begin);
  }
  if (comparison.order == Order::kMostAlone && most && (!asked || asked->value <= most->value)) {
    asked = first_number(line, most->end, most->end + kNear);
    asked_begin = most->end;
  }
  if (!asked || !most || asked->is_size != most->is_size || asked->value <= most->value || most->value <= 0 ||
      asked->value >= 9e18)
    return std::nullopt;
  NumberPair pair;
  pair.asked = static_cast<int64_t>(asked->value);
  pair.most = static_cast<int64_t>(most->value);
  pair.is_size = asked->is_size;
  pair.asked_name = counted_name(line.substr(asked_begin, asked->begin - asked_begin));
  pair.most_name = counted_name(line.substr(most_begin, most->begin - most_begin));
  return pair;
}

}  // namespace

bool NumberPair::most_is_setting() const {
  return is_setting(most_name);
}

std::optional<NumberPair> number_pair_in(std::string_view line, bool is_of_error) {
  line = line.substr(0, kLongestCompared);
  if (!is_of_error && !says_error(line)) return std::nullopt;
  for (const Comparison& comparison : kComparisons) {
    for (size_t at = line.find(comparison.words); at != std::string_view::npos;
         at = line.find(comparison.words, at + 1)) {
      if (auto pair = pair_at(line, at, comparison)) return pair;
    }
  }
  return std::nullopt;
}

}  // namespace headroom::explain
