#include "tools/explain/log_reader.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "tools/explain/characters.h"
#include "tools/explain/line_parts.h"
#include "tools/explain/template_match.h"

namespace headroom::explain {
namespace {

// A message that begins in the last part of a piece may end in the next. No message that is read is longer.
constexpr size_t kLongestMessage = 4096;
// llama.cpp prints the driver's refusal first and then for what it asked.
constexpr std::string_view kPhasesThatFollow[] = {"layers",    "tensors",        "cache",       "compute",
                                                  "first_use", "pool_addresses", kFailedLoading};
constexpr std::string_view kFrame = "File \"";      // begins a line of a traceback
constexpr std::string_view kHandling = "handling";  // the phase of a chained exception
constexpr int64_t kFollowingLines = 6;

}  // namespace

// Escapes, no-break spaces and NUL bytes are rare, so all between them is taken at once.
void LogReader::clean(std::string_view piece) {
  constexpr std::array<char, 3> kSpecial = {'\x1b', '\xc2', '\0'};
  std::array<size_t, 3> next = {};  // where each of them is found next
  const auto find_from = [&](size_t at) {
    size_t nearest = piece.size();
    for (size_t i = 0; i < kSpecial.size(); ++i) {
      if (next[i] <= at) next[i] = std::min(piece.find(kSpecial[i], at), piece.size());
      nearest = std::min(nearest, next[i]);
    }
    return nearest;
  };
  for (size_t i = 0; i < piece.size(); ++i) {
    if (escape_ == Escape::kNone && !lead_byte_) {
      const size_t end = find_from(i);
      text_.append(piece, i, end - i);
      i = end;
      if (i == piece.size()) return;
      if (piece[i] == '\0') {  // a device that is not a log has nothing else
        i = std::min(piece.find_first_not_of('\0', i), piece.size()) - 1;
        continue;
      }
    }
    clean_special(piece[i]);
  }
}

void LogReader::clean_special(char c) {
  if (escape_ != Escape::kNone) {
    if (c == '\n') {
      escape_ = Escape::kNone;  // an escape that does not end swallows one line at most
    } else if (escape_ == Escape::kBegun) {
      escape_ = c == '[' ? Escape::kSequence : c == ']' ? Escape::kString : Escape::kNone;
      return;
    } else {
      const bool ends = escape_ == Escape::kSequence ? (c >= 0x40 && c <= 0x7e) : (c == '\a' || c == '\\');
      if (ends) escape_ = Escape::kNone;
      return;
    }
  }
  if (lead_byte_) {
    lead_byte_ = false;
    text_ += c == '\xa0' ? ' ' : '\xc2';
    if (c == '\xa0') return;
  }
  if (c == '\x1b') {
    escape_ = Escape::kBegun;
  } else if (c == '\xc2') {
    lead_byte_ = true;
  } else if (c != '\0') {  // UTF-16 of plain English is every other byte NUL
    text_ += c;
  }
}

void LogReader::feed(std::string_view piece) {
  clean(piece);
  // Rarely enough that small pieces are not read over and over.
  if (text_.size() - counted_ < 8 * kLongestMessage) return;
  const size_t end = text_.size() - kLongestMessage;
  scan(end);
  count_lines_to(end);
  // The start of the line is kept: it says the rank, and whether a setting is advice.
  const size_t kept = std::max(text_.rfind('\n', end - 1) + 1, end - std::min(end, kLongestMessage));
  text_.erase(0, kept);
  erased_ += kept;
  counted_ = end - kept;
  line_begin_ -= std::min(line_begin_, kept);
}

Log LogReader::finish() {
  scan(text_.size());
  count_lines_to(text_.size());
  keep_longest_samples();
  log_.line_count = text_.empty() || text_.back() == '\n' ? line_ - 1 : line_;
  return std::move(log_);
}

void LogReader::scan(size_t end) {
  const size_t begin = counted_;
  const size_t stop = std::min(text_.size(), end + kLongestMessage);
  log_.rules->scanner().scan(std::string_view(text_).substr(begin, stop - begin),
                             [&](size_t word, size_t at) {
                               if (begin + at < end) read_at(word, begin + at);
                             });
  read_hints(end);
}

void LogReader::count_lines_to(size_t at) {
  if (at <= counted_) return;
  const std::string_view passed = std::string_view(text_).substr(0, at);
  // find() looks at many bytes at once, std::count() at one.
  for (size_t end = passed.find('\n', counted_); end != passed.npos; end = passed.find('\n', end + 1)) {
    ++line_;
    line_begin_ = end + 1;
  }
  counted_ = at;
}

void LogReader::read_at(size_t word, size_t begin) {
  const Rules::Readings& readings = log_.rules->readings(word);
  if (readings.is_hint && is_decided_) return;
  const std::string_view head = log_.rules->words()[word];
  for (const Setting* option : readings.options) keep_option(*option, begin);
  const bool ends_name = begin > 0 && text_[begin - 1] == '_';
  const bool is_part_of_name = readings.is_fact && begin > 0 && head[0] >= 'A' && head[0] <= 'Z' &&
                               text_[begin - 1] >= 'a' && text_[begin - 1] <= 'z';
  if (is_word_character(head[0]) && begin > 0 && is_word_character(text_[begin - 1]) && !is_part_of_name &&
      !ends_name_of_line(head, begin) && !(head == "OUT_OF_MEMORY" && ends_name) &&
      !(readings.is_sample && ends_name))
    return;
  const std::string_view rest = std::string_view(text_).substr(begin, kLongestMessage);
  const auto matches = [&](const auto& row) {
    tried_.captures.clear();
    const std::optional<int64_t> length = match_template(row.parts, rest, tried_.captures);
    tried_.length = length.value_or(0);
    return length.has_value();
  };
  const Message* best = nullptr;
  for (const Message* message : readings.messages) {
    if (!matches(*message)) continue;
    if (message->kind == Kind::kSample) add(*message, begin, tried_);  // beside what the line says
    if (message->kind == Kind::kSample || (best != nullptr && tried_.length <= best_.length)) continue;
    best = message;
    std::swap(best_, tried_);
  }
  if (best != nullptr) add(*best, begin, best_);
  for (const Setting* setting : readings.settings) {
    if (matches(*setting)) read_setting(*setting, begin);
  }
  for (const Setting* phase : readings.phases) {
    if (!matches(*phase)) continue;
    read_hints(begin);
    count_lines_to(begin);
    keep_phase(phase->name);
  }
}

// The program's activity, as the line up to which lines are counted tells it.
void LogReader::keep_phase(std::string_view phase) {
  phase_lines_[phase] = line_;
  if (phase == kHandling) handling_line_ = line_;
  if (Failure* failure = failure_of_line()) failure->phases[phase] = line_;
  keep_phase_below(phase);
  keep_phase_of_frame(phase);
  const bool follows = std::ranges::find(kPhasesThatFollow, phase) != std::end(kPhasesThatFollow);
  if (!follows) return;
  for (auto failure = log_.failures.rbegin(); failure != log_.failures.rend(); ++failure) {
    if (line_ - failure->line >= kFollowingLines) break;
    failure->phases[phase] = line_;
  }
}

// "OpenMMException: ", "simtk.openmm.OpenMMException: " at the begin of a line, as a traceback ends: a class
// whose name is not known.
bool LogReader::ends_name_of_line(std::string_view head, size_t begin) const {
  if (head != "Error: " && head != "Exception: ") return false;
  constexpr size_t kLongestName = 120;
  const std::string_view name = before(begin, kLongestName);
  return name.size() < kLongestName &&
         std::ranges::all_of(name, [](char c) { return is_word_character(c) || c == '.'; });
}

// Cuts a line that is longer than any message to the part around `at`.
std::string_view LogReader::line_at(size_t at) const {
  const size_t first = at - std::min(at, kLongestMessage);
  const std::string_view around = std::string_view(text_).substr(first, 2 * kLongestMessage);
  const size_t before = at == first ? std::string_view::npos : around.rfind('\n', at - first - 1);
  const size_t begin = before == std::string_view::npos ? 0 : before + 1;
  return around.substr(begin, std::min(around.find('\n', at - first), around.size()) - begin);
}

// Reads the rank of the line up to which lines are counted.
const std::string& LogReader::rank_here() {
  constexpr size_t kLongestRank = 400;
  if (rank_line_ == line_) return rank_;
  rank_line_ = line_;
  rank_ =
      printable(rank_of(std::string_view(text_).substr(line_begin_, kLongestRank)).substr(0, kLongestText));
  return rank_;
}

// At most so much before `at` on its line.
std::string_view LogReader::before(size_t at, size_t most) const {
  const size_t first = at - std::min(at, most);
  const std::string_view lead = std::string_view(text_).substr(first, at - first);
  const size_t end = lead.rfind('\n');
  return end == std::string_view::npos ? lead : lead.substr(end + 1);
}

// At most so much from `at` on, on its line.
std::string_view LogReader::behind(size_t at, size_t most) const {
  const std::string_view rest = std::string_view(text_).substr(at, most);
  return rest.substr(0, rest.find('\n'));
}

void LogReader::read_setting(const Setting& setting, size_t begin) {
  constexpr size_t kNear = 256;  // distance of a piece of advice after the words that make it one
  if (log_.settings.contains(setting.name)) return;
  const std::string_view lead = before(begin, kNear);
  const size_t start = begin - lead.size();
  const std::string_view above =
      before(start - std::min<size_t>(start, 1), kNear);  // a line that was wrapped
  for (const std::string_view words : log_.rules->advising_words()) {
    if (lead.find(words) != std::string_view::npos || above.ends_with(words)) return;
  }
  log_.settings.emplace(setting.name);
}

void LogReader::read_hints(size_t end) {
  constexpr int64_t kWorth = 2;
  auto hint = hints_.begin();
  for (; hint != hints_.end() && hint->begin < end; ++hint) {
    count_lines_to(hint->begin);
    if (hint->is_tip)
      keep_tip(hint->begin);
    else
      add_close_line(kWorth, hint->begin);
  }
  hints_.erase(hints_.begin(), hint);
}

void LogReader::add(const Message& message, size_t begin, const Match& match) {
  const bool is_tip = message.kind == Kind::kTip;
  if (message.kind == Kind::kHint || is_tip) return hints_.push_back({begin, is_tip});
  read_hints(begin);
  switch (message.kind) {
    case Kind::kMention:
      log_.mentioned.insert(message.framework);
      return;
    case Kind::kPython:
      log_.is_python = true;
      if (message.pattern != kFrame) return;
      count_lines_to(begin);
      last_frame_line_ = line_;
      return;
    case Kind::kVariable:
      return keep_variable(begin);
    case Kind::kStatedCause:
      count_lines_to(begin);
      return add_stated_cause(message, begin);
    case Kind::kBackground:
      count_lines_to(begin);
      return add_background(message, begin, match);
    case Kind::kCommand:
      count_lines_to(begin);
      add_background(message, begin, match);
      return keep_command(begin);
    case Kind::kRootCause:
      count_lines_to(begin);
      root_cause_line_ = line_;
      return;
    case Kind::kSample:
      count_lines_to(begin);
      return add_sample(message, begin, match);
    case Kind::kModelName:
      if (message.framework != Framework::kNone) log_.mentioned.insert(message.framework);
      if (log_.parameters.empty()) keep_model(behind(begin, kLongestText));
      return;
    case Kind::kRecovered:
    case Kind::kFallback:
      count_lines_to(begin);
      add_background(message, begin, match);
      // "ran out of memory, skipping batch" is one message of a failure, where a program says so.
      if (failure_of_line() != nullptr && erased_ + begin < failure_begin_ + failure_length_) return;
      return add_recovery(message);
    case Kind::kProgress:
      if (log_.failures.empty()) return;
      count_lines_to(begin);
      return add_progress(message.weak);
    case Kind::kDetail:
    case Kind::kPiece:
      count_lines_to(begin);
      return add_detail(message, match);
    default:
      count_lines_to(begin);
      return add_failure(message, begin, match);
  }
}

Log read_log(std::string_view text, const Rules& rules) {
  LogReader reader(rules);
  reader.feed(text);
  return reader.finish();
}

}  // namespace headroom::explain
