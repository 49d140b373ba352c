#include "tools/explain/line_parts.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <utility>

#include "base/text.h"
#include "tools/explain/characters.h"

namespace headroom::explain {
namespace {

constexpr size_t kLongestCommand = 500;

// These characters may stand in a command that someone will paste: nothing that a shell acts on.
bool is_plain(char c) {
  constexpr std::string_view kPlain = " _./=:,@+-~%\"'[]{}";
  return is_letter(c) || is_digit(c) || kPlain.find(c) != std::string_view::npos;
}

// "$NAME" or "${NAME}" of the user's own shell, and "\\bin" in a path of Windows: neither makes a shell act.
bool is_harmless(std::string_view rest) {
  if (rest.size() > 1 && rest[0] == '\\') return is_letter(rest[1]) || is_digit(rest[1]) || rest[1] == '.';
  if (!rest.starts_with('$')) return false;
  rest.remove_prefix(1);
  const bool is_braced = rest.starts_with('{');
  if (is_braced) rest.remove_prefix(1);
  size_t end = 0;
  while (end < rest.size() && (is_letter(rest[end]) || is_digit(rest[end]) || rest[end] == '_')) ++end;
  return end > 0 && !is_digit(rest[0]) && (!is_braced || rest.substr(end).starts_with('}'));
}

bool is_assignment(std::string_view word) {
  const size_t equals = word.find('=');
  return equals != std::string_view::npos && equals > 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<int64_t>(equals),
                     [](char c) { return (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); });
}

// A prompt may stand before a command on its line.
bool is_prompt(std::string_view lead) {
  lead = trimmed(lead);
  if (lead.empty() || lead == kProvenLead) return true;
  for (const std::string_view end :
       {"$", "#", ">", "%", "+", "cmd =", "command:", "Command:", "exec", "command line:", "run:", "nohup",
        "sudo", "Running:", "Killed", "killed"}) {
    if (lead.ends_with(end)) return true;
  }
  return false;
}

}  // namespace

std::string_view rank_of(std::string_view line) {
  constexpr size_t kLongestPrefix = 100;  // prefix of a logger, before the rank
  const std::string_view lead = line.substr(0, kLongestPrefix);
  for (const std::string_view open : {"[rank", "[RANK ", "[default", "[pod/", "[1,"}) {
    const size_t at = lead.find(open);
    if (at == std::string_view::npos || (open == "[1," && at > 0)) continue;
    // "[default0]", and not "[defaultAllocator.cpp::allocate::19]".
    const size_t number = at + open.size();
    if (open == "[default" && (number >= line.size() || !is_digit(line[number]))) continue;
    const size_t close = line.find(']', at);
    if (close != std::string_view::npos) return line.substr(at, close - at + 1);
  }
  if (const size_t pid = lead.find("pid="); pid != std::string_view::npos) {
    const size_t open = lead.rfind('(', pid), close = line.find(')', pid);
    const bool is_name = open != std::string_view::npos && pid - open < 40 &&
                         line.substr(open, pid - open).find(',') == std::string_view::npos;
    if (is_name && close != std::string_view::npos) return line.substr(open, close - open + 1);
  }
  size_t digits = 0;
  while (digits < 5 && digits < line.size() && is_digit(line[digits])) ++digits;
  if (digits > 0 && line.substr(digits).starts_with(": ")) return line.substr(0, digits + 1);
  return {};
}

std::optional<int64_t> number_of_rank(std::string_view rank) {
  // "(WorkerDict pid=393228, ip=10.0.0.7)"
  if (rank.find("pid=") != std::string_view::npos) rank = rank.substr(0, rank.find(','));
  size_t end = rank.size();
  while (end > 0 && !is_digit(rank[end - 1])) --end;
  size_t begin = end;
  while (begin > 0 && is_digit(rank[begin - 1])) --begin;
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(rank.data() + begin, rank.data() + end, number);
  return error == std::errc() && begin < end ? std::optional(number) : std::nullopt;
}

std::string command_in(std::string_view line, size_t at) {
  size_t begin = at;  // the program with its folder
  while (begin > 0 && line[begin - 1] != ' ' && line[begin - 1] != '>' && line[begin - 1] != '$') --begin;
  while (begin > 1 && line[begin - 1] == ' ') {
    const size_t before = line.rfind(' ', begin - 2);
    const size_t word = before == std::string_view::npos ? 0 : before + 1;
    if (!is_assignment(line.substr(word, begin - 1 - word))) break;
    begin = word;
  }
  if (!is_prompt(line.substr(0, begin))) return {};
  std::string command;
  bool quoted = false;
  char quote = 0;
  const std::string_view text = line.substr(begin, kLongestCommand);
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\r') break;
    if (!is_plain(c) && !is_harmless(text.substr(i))) {
      // A redirection or a pipe ends the command; what else a shell acts on cannot be repeated.
      const bool ends = c == '|' || c == '&' || c == ';' || c == '>' || c == '<' || c == '#';
      if (!ends || quoted) return {};
      // "2>": the number belongs to the redirection.
      if (c == '>' && command.size() > 1 && is_digit(command.back()) && command[command.size() - 2] == ' ')
        command.pop_back();
      break;
    }
    if ((c == '"' || c == '\'') && (!quoted || c == quote)) {
      quoted = !quoted;
      quote = c;
    }
    command += c;
  }
  if (quoted) return {};
  return std::string(trimmed(command));
}

std::string parameters_in(std::string_view line) {
  const auto is_part = [&](size_t i) { return i < line.size() && (is_letter(line[i]) || line[i] == '_'); };
  for (size_t i = 0; i < line.size(); ++i) {
    if (!is_digit(line[i]) || (i > 0 && (is_digit(line[i - 1]) || line[i - 1] == '.'))) continue;
    if (i > 0 && is_letter(line[i - 1])) continue;
    size_t end = i;
    while (end < line.size() && (is_digit(line[end]) || line[end] == '.')) ++end;
    if (end < line.size() && line[end] == 'x' && end + 1 < line.size() && is_digit(line[end + 1])) {
      ++end;
      while (end < line.size() && is_digit(line[end])) ++end;
    }
    size_t unit = end;
    if (unit < line.size() && line[unit] == ' ') ++unit;  // "13.02 B"
    if (unit >= line.size() || (line[unit] != 'b' && line[unit] != 'B') || is_part(unit + 1)) continue;
    if (unit + 1 < line.size() && is_digit(line[unit + 1])) continue;
    if (!parameter_count(std::string(line.substr(i, end - i)) + "b")) continue;
    std::string result = std::string(line.substr(i, end - i)) + "b";
    const std::string lower = lowered(line);
    for (const std::string_view mark : {"awq", "gptq", "4bit", "int4", "nf4", "bnb-4", "gguf"}) {
      if (lower.find(mark) != std::string::npos) return result + " 4bit";
    }
    for (const std::string_view mark : {"int8", "8bit", "fp8"}) {
      if (lower.find(mark) != std::string::npos) return result + " 8bit";
    }
    return result;
  }
  return {};
}

std::optional<double> parameter_count(std::string_view parameters) {
  const size_t unit = parameters.find_first_of("bB");
  if (unit == std::string_view::npos) return std::nullopt;
  double experts = 1, billions = 0;
  const char* begin = parameters.data();
  const char* const end = begin + unit;
  if (const size_t times = parameters.find('x'); times < unit) {
    if (std::from_chars(begin, begin + times, experts).ec != std::errc()) return std::nullopt;
    begin += times + 1;
    experts *= 0.84;  // experts share the rest: Mixtral-8x7B has 46.7e9, 8x22B 141e9
  }
  if (std::from_chars(begin, end, billions).ec != std::errc()) return std::nullopt;
  if (billions * experts < 0.05 || billions * experts > 3000) return std::nullopt;
  return billions * experts * 1e9;
}

std::vector<std::string> words_of_name(std::string_view name) {
  std::vector<std::string> words;
  bool goes_on = false;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool is_capital = c >= 'A' && c <= 'Z';
    const bool begins_part = is_capital && i > 0 && name[i - 1] >= 'a' && name[i - 1] <= 'z';
    const bool is_in_word = (is_letter(c) && c != '_') || is_digit(c);
    if (is_in_word && (!goes_on || begins_part)) words.emplace_back();
    if (is_in_word) words.back() += is_capital ? static_cast<char>(c - 'A' + 'a') : c;
    goes_on = is_in_word;
  }
  return words;
}

bool has_scores_shape(std::string_view shape) {
  constexpr int64_t kFewTokens = 256;
  if (const size_t open = shape.find('['); open != std::string_view::npos) shape.remove_prefix(open + 1);
  std::vector<int64_t> extents;
  const char* at = shape.data();
  const char* const end = at + shape.size();
  while (at != end && extents.size() < 16) {
    while (at != end && (*at == ' ' || *at == ',')) ++at;
    int64_t extent = 0;
    const auto [stop, error] = std::from_chars(at, end, extent);
    if (error != std::errc()) break;
    extents.push_back(extent);
    at = stop;
  }
  const size_t count = extents.size();
  return count >= 3 && extents[count - 1] == extents[count - 2] && extents[count - 1] >= kFewTokens;
}

std::optional<int64_t> tensor_bytes(const std::string& dims, const std::string& type) {
  constexpr std::pair<std::string_view, int64_t> kTypes[] = {
      {"float", 4},    {"float32", 4}, {"double", 8}, {"float64", 8}, {"half", 2},      {"float16", 2},
      {"bfloat16", 2}, {"int8", 1},    {"uint8", 1},  {"int16", 2},   {"uint16", 2},    {"int32", 4},
      {"uint32", 4},   {"int64", 8},   {"uint64", 8}, {"bool", 1},    {"complex64", 8}, {"complex128", 16}};
  const auto known = std::ranges::find_if(kTypes, [&](const auto& row) { return row.first == type; });
  if (known == std::end(kTypes) || dims.empty()) return std::nullopt;
  int64_t bytes = known->second;
  const char* at = dims.data();
  const char* const end = at + dims.size();
  while (true) {
    while (at != end && *at == ' ') ++at;
    int64_t extent = 0;
    const auto [stop, error] = std::from_chars(at, end, extent);
    if (error != std::errc() || extent < 0) return std::nullopt;
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::numeric_limits<int64_t>::max();
    if (stop == end) return bytes;
    if (*stop != ',') return std::nullopt;
    at = stop + 1;
  }
}

}  // namespace headroom::explain
