// Implements what LogReader keeps of a log besides its failures.
#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <utility>

#include "base/text.h"
#include "tools/explain/characters.h"
#include "tools/explain/line_parts.h"
#include "tools/explain/log_reader.h"

namespace headroom::explain {
namespace {

constexpr size_t kLongestFact = 400;
constexpr size_t kMostStreams = 256;
constexpr size_t kMostCloseLines = 3;
constexpr size_t kMostSamples = 4096;
// A launcher says who failed first within so many lines of saying that it will.
constexpr int64_t kRootCauseLines = 8;

// "2.5.0-rc1" is 2005; nothing for what does not begin with two numbers.
std::optional<int64_t> parse_version(std::string_view text) {
  int64_t major = 0, minor = 0;
  const char* const end = text.data() + text.size();
  const auto [dot, error] = std::from_chars(text.data(), end, major);
  if (error != std::errc() || dot == end || *dot != '.' || major < 0 || major > 99) return std::nullopt;
  if (std::from_chars(dot + 1, end, minor).ec != std::errc() || minor < 0 || minor > 999) return std::nullopt;
  return 1000 * major + minor;
}

// It becomes part of a command that someone may paste, so it has to be one word for a shell.
bool is_plain_script(std::string_view path) {
  return path.ends_with(".py") && path.size() < 200 && path[0] != '-' &&
         std::ranges::all_of(path,
                             [](char c) { return is_word_character(c) || c == '/' || c == '.' || c == '-'; });
}

}  // namespace

void LogReader::add_background(const Message& message, size_t begin, const Match& match) {
  keep_version_bound(message);
  if (message.framework != Framework::kNone) log_.mentioned.insert(message.framework);
  for (const Capture& capture : match.captures) keep_fact(message, begin, capture);
}

void LogReader::keep_fact(const Message& message, size_t begin, const Capture& capture) {
  const auto keep_first = [&](std::string& fact) {
    if (fact.empty()) fact = printable(capture.text.substr(0, kLongestFact));
  };
  switch (capture.field) {
    case Field::kVersion:
      if (const auto version = parse_version(capture.text))
        log_.versions.emplace(message.framework, *version);
      return;
    case Field::kScript:
      if (log_.script.empty() && is_plain_script(capture.text)) log_.script = capture.text;
      return;
    case Field::kCommand:
      return keep_command(begin);
    case Field::kShare:
      return keep_first(log_.share);
    case Field::kFraction:
      return keep_first(log_.fraction);
    case Field::kDtype:
      return keep_first(log_.dtype);
    case Field::kPid:
      if (log_.pids.size() < kMostPids) log_.pids.insert(capture.bytes);
      return;
    case Field::kRootRank:
      // A launcher's list of all that failed ends with the one that failed first.
      if (root_cause_line_ > 0 && line_ - root_cause_line_ < kRootCauseLines && !log_.root_rank)
        log_.root_rank = capture.bytes;
      return;
    default:
      if (!is_text(capture.field) && !log_.background[capture.field])
        log_.background[capture.field] = Figure{capture.bytes, line_, capture.precision};
  }
}

// The last command before the first failure, else the first after it.
void LogReader::keep_command(size_t begin) {
  const std::string_view lead = before(begin, kLongestFact);
  const bool is_proven = trimmed(lead) == kProvenLead;
  if (log_.failure_count > 0 && !log_.command.empty() && !is_proven) return;
  const std::string line = std::string(lead) + std::string(behind(begin, 2 * kLongestFact));
  std::string command = command_in(line, lead.size());
  if (command.empty()) return;
  keep_model(command);
  (is_proven ? log_.proven : log_.command) = std::move(command);
}

// Of a name that something sets: NAME=value, or "NAME" in quotes.
void LogReader::keep_variable(size_t begin) {
  constexpr size_t kMost = 8, kMostNames = 100, kLongestName = 80;
  const std::string_view rest = behind(begin, kLongestName);
  const auto end = static_cast<size_t>(std::ranges::find_if_not(rest, is_word_character) - rest.begin());
  if (end == rest.size() || log_.misspelled.size() == kMost) return;
  const bool is_quoted =
      begin > 0 && text_[begin - 1] == rest[end] && (rest[end] == '"' || rest[end] == '\'');
  if (rest[end] != '=' && !is_quoted) return;
  const std::string_view name = rest.substr(0, end);
  // Each name is looked up once, and no log sets more of them.
  if (variables_.size() == kMostNames || !variables_.emplace(name).second) return;
  const std::string_view intended = intended_variable(name);
  if (!intended.empty()) log_.misspelled.push_back({std::string(name), intended});
}

// "image_max_pixels: 67108864", "--max-tokens 8192", "'batch_size': 16": a name with the words of an option
// in it, and a whole number.
void LogReader::keep_option(const Setting& option, size_t begin) {
  constexpr size_t kMost = 32, kLongestName = 64;
  if (log_.options.size() == kMost) return;
  const auto is_part = [](char c) { return is_word_character(c) || c == '-' || c == '.'; };
  const std::string_view lead = before(begin, kLongestName), rest = behind(begin, 2 * kLongestName);
  const size_t words = option.pattern.size();
  if (rest.size() <= words || is_letter(rest[words]) || (!lead.empty() && is_letter(lead.back()))) return;
  const auto first = std::find_if_not(lead.rbegin(), lead.rend(), is_part);
  const auto end = static_cast<size_t>(std::ranges::find_if_not(rest, is_part) - rest.begin());
  std::string name(first.base(), lead.end());
  name += rest.substr(0, end);
  std::string_view value = rest.substr(end);
  const auto skip = [&](std::string_view marks) {
    const size_t kept = std::min(value.find_first_not_of(marks), value.size());
    value.remove_prefix(kept);
    return kept > 0;
  };
  skip("'\"");
  const bool has_blank = skip(" ");
  if (!skip("=:") && !(has_blank && name.starts_with('-'))) return;
  skip(" '\"");
  int32_t number = 0;
  const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool is_whole =
      error == std::errc() && (stop == value.data() + value.size() || (!is_part(*stop) && *stop != '%'));
  if (!is_whole || number < 1 || name.size() > kLongestName) return;
  const auto has_name = [&](const OptionInUse& other) { return other.name == name; };
  if (std::ranges::any_of(log_.options, has_name)) return;
  const Field field = option.name == "batch" ? Field::kBatch : Field::kLength;
  if ((option.name == "batch" || option.name == "length") && !log_.background[field]) {
    count_lines_to(begin);
    log_.background[field] = Figure{number, line_};
  }
  log_.options.push_back({option.name, std::move(name), number});
}

void LogReader::keep_model(std::string_view line) {
  if (log_.parameters.empty()) log_.parameters = parameters_in(line);
}

// "Try increasing `gpu_memory_utilization` ...": up to the end of its sentence.
void LogReader::keep_tip(size_t begin) {
  constexpr int64_t kNear = 3;  // lines after the failure
  constexpr size_t kLongest = 160;
  if (!log_.tip.empty() || log_.failures.empty() || line_ - log_.failures.back().line > kNear) return;
  const std::string_view rest = behind(begin, kLongest);
  // The advice of PyTorch's pool and of CUDA stands in every such message.
  for (const std::string_view usual :
       {"ALLOC_CONF", "max_split_size", "empty_cache", "CUDA_LAUNCH", "WATERMARK"}) {
    if (rest.find(usual) != std::string_view::npos) return;
  }
  const size_t end = std::min(rest.find(". "), rest.size());
  if (end == kLongest) return;  // cut off
  log_.tip = printable(trimmed(rest.substr(0, end)));
}

// Keeps the lines with most words of memory and limits. The first of equal lines counts.
void LogReader::add_close_line(int64_t worth, size_t begin) {
  std::vector<CloseLine>& kept = log_.close_lines;
  auto own = std::ranges::find_if(kept, [&](const CloseLine& each) { return each.line == line_; });
  if (own == kept.end()) {
    if (kept.size() == kMostCloseLines && kept.back().score > worth) return;
    const std::string_view lead = before(begin, kLongestFact);
    std::string text = printable(trimmed(std::string(lead) + std::string(behind(begin, kLongestFact))));
    const bool has_number = std::ranges::any_of(text, is_digit);
    if (kept.size() == kMostCloseLines) kept.pop_back();
    kept.push_back({line_, has_number ? 1 : 0, std::move(text)});
    own = std::prev(kept.end());
  }
  own->score += worth;
  for (; own != kept.begin() && std::prev(own)->score < own->score; --own) std::swap(*own, *std::prev(own));
}

// Figures of one series have the same words before them.
void LogReader::add_sample(const Message& message, size_t begin, const Match& match) {
  constexpr size_t kLead = 48;
  if (log_.failure_count > 0 || match.captures.empty() || match.captures.back().bytes >= kImpossibleBytes)
    return;
  const std::string_view figure = std::string_view(text_).substr(begin, static_cast<size_t>(match.length));
  std::string key;
  for (const std::string& word : words_of_name(std::string(before(begin, kLead)) + std::string(figure))) {
    for (const std::string_view other :
         {"free", "avail", "available", "total", "capacity", "limit", "left"}) {
      if (word == other) return;  // not what is in use
    }
    if (!is_digit(word[0])) key += word;
  }
  key += rank_here();
  if (samples_.size() == kMostStreams && !samples_.contains(key)) return;
  samples_[key].has_unit = message.pattern.find('#') == std::string_view::npos;
  std::vector<Figure>& all = samples_[key].all;
  if (all.size() == kMostSamples) {  // every other one tells the same
    for (size_t i = 0; i < kMostSamples / 2; ++i) all[i] = all[2 * i];
    all.resize(kMostSamples / 2);
  }
  all.push_back({match.captures.back().bytes, line_, match.captures.back().precision});
}

void LogReader::keep_longest_samples() {
  // Of several series the one that grows most tells more than the longest.
  const auto grows = [](int64_t first, int64_t last) {
    return first > 0 ? static_cast<double>(last) / static_cast<double>(first) : 0;
  };
  constexpr int64_t kFew = 4;
  for (const auto& [key, series] : samples_) {
    const std::vector<Figure>& all = series.all;
    const auto count = static_cast<int64_t>(all.size());
    const bool both_are_long = count >= kFew && log_.samples.count >= kFew;
    if (both_are_long
            ? grows(all.front().bytes, all.back().bytes) <= grows(log_.samples.first, log_.samples.last)
            : count <= log_.samples.count)
      continue;
    Samples& kept = log_.samples;
    kept = {.first = all.front().bytes,
            .middle = all[all.size() / 2].bytes,
            .last = all.back().bytes,
            .count = static_cast<int64_t>(all.size()),
            .first_line = all.front().line,
            .last_line = all.back().line,
            .has_unit = series.has_unit};
    for (size_t i = 1; i < all.size(); ++i) kept.falls += all[i].bytes < all[i - 1].bytes;
  }
}

}  // namespace headroom::explain
