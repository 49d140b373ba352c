#include "base/toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <unordered_map>
#include <utility>

#include "base/errors.h"
#include "base/text.h"

namespace headroom {
namespace {

bool is_bare_key(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
}
bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c));
}

// Text of the file for a message.
std::string shown(std::string_view text) {
  constexpr size_t kMaxShownBytes = 80;
  return printable(text, kMaxShownBytes);
}

// One line, read from left to right.
class Line {
 public:
  Line(std::string_view text, std::string_view file, int number)
      : rest_(text), file_(file), number_(number) {}

  [[noreturn]] void fail(std::string_view why) const {
    throw InvalidArgument(fmt::format("{}:{}: {}", file_, number_, why));
  }

  // True when only blanks and a comment are left.
  bool at_end() {
    skip_blanks();
    return rest_.empty() || rest_[0] == '#';
  }

  TomlEntry read_entry() {
    if (rest_[0] == '[') fail("tables are not used here: write `key = value`");
    TomlEntry entry{.key = {}, .value = {}, .line = number_};
    entry.key = rest_[0] == '"' || rest_[0] == '\'' ? read_string() : read_while(is_bare_key);
    if (entry.key.empty()) fail("expected `key = value`");
    skip_blanks();
    if (!take('=')) fail(fmt::format("expected '=' after '{}'", shown(entry.key)));
    skip_blanks();
    if (at_end()) fail(fmt::format("'{}' has no value", shown(entry.key)));
    const bool quoted = rest_[0] == '"' || rest_[0] == '\'';
    entry.value = quoted ? read_string() : read_plain();
    if (!at_end()) fail(fmt::format("unexpected text after the value of '{}'", shown(entry.key)));
    return entry;
  }

 private:
  void skip_blanks() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t')) rest_.remove_prefix(1);
  }

  bool take(char c) {
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::string read_while(bool (*accept)(char)) {
    const auto end = std::ranges::find_if_not(rest_, accept);
    const std::string result(rest_.begin(), end);
    rest_.remove_prefix(result.size());
    return result;
  }

  std::string read_string() {
    const char quote = rest_[0];
    if (rest_.size() >= 3 && rest_[1] == quote && rest_[2] == quote)
      fail("multi-line strings are not used here");
    rest_.remove_prefix(1);
    std::string result;
    while (!take(quote)) {
      if (rest_.empty()) fail("a string does not end on its line");
      char c = rest_[0];
      rest_.remove_prefix(1);
      if (static_cast<unsigned char>(c) < 0x20 && c != '\t') fail("a control character inside a string");
      if (quote == '"' && c == '\\') c = read_escape();
      result += c;
    }
    return result;
  }

  char read_escape() {
    constexpr std::string_view kWritten = "\"\\tnr", kMeant = "\"\\\t\n\r";
    const size_t at = rest_.empty() ? std::string_view::npos : kWritten.find(rest_[0]);
    if (at == std::string_view::npos) fail("an escape in a string is none of \\\" \\\\ \\t \\n \\r");
    rest_.remove_prefix(1);
    return kMeant[at];
  }

  // A boolean or a decimal number.
  std::string read_plain() {
    const std::string text = read_while([](char c) { return is_bare_key(c) || c == '+' || c == '.'; });
    if (text == "true" || text == "false") return text;
    if (!is_number(text)) {
      fail(fmt::format("'{}' is neither a number nor a boolean; put text in quotes",
                       shown(text.empty() ? rest_ : text)));
    }
    std::string number = text;
    std::erase(number, '_');
    if (number[0] == '+') number.erase(0, 1);
    return number;
  }

  // Digits, which '_' may part, with a sign, a fraction and an exponent where TOML has them.
  static bool is_number(std::string_view text) {
    const auto sign = [&] {
      if (!text.empty() && (text[0] == '+' || text[0] == '-')) text.remove_prefix(1);
    };
    const auto digits = [&] {
      if (text.empty() || !is_digit(text[0])) return false;
      while (!text.empty() &&
             (is_digit(text[0]) || (text[0] == '_' && text.size() > 1 && is_digit(text[1])))) {
        text.remove_prefix(1);
      }
      return true;
    };
    sign();
    if (!digits()) return false;
    if (!text.empty() && text[0] == '.') {
      text.remove_prefix(1);
      if (!digits()) return false;
    }
    if (!text.empty() && (text[0] == 'e' || text[0] == 'E')) {
      text.remove_prefix(1);
      sign();
      if (!digits()) return false;
    }
    return text.empty();
  }

  std::string_view rest_, file_;
  int number_;
};

}  // namespace

std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view file) {
  std::vector<TomlEntry> entries;
  std::unordered_map<std::string, int> lines;  // of each key
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view content = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (content.ends_with('\r')) content.remove_suffix(1);
    Line line(content, file, number);
    if (line.at_end()) continue;
    TomlEntry entry = line.read_entry();
    const auto [before, is_new] = lines.emplace(entry.key, entry.line);
    if (!is_new) line.fail(fmt::format("'{}' stands in line {} already", shown(entry.key), before->second));
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string toml_quoted(std::string_view value) {
  std::string result = "\"";
  for (const char c : value) {
    switch (c) {
      case '"':
      case '\\':
        result += '\\';
        result += c;
        break;
      case '\n':
        result += "\\n";
        break;
      case '\r':
        result += "\\r";
        break;
      case '\t':
        result += "\\t";
        break;
      default:
        result += c;
    }
  }
  return result + '"';
}

}  // namespace headroom
