#include "tools/explain/log_reader.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "runtime/base/text.h"
#include "tools/explain/template_match.h"
#include "tools/explain/word_scanner.h"

namespace headroom::explain {
namespace {

// A message that begins in the last part of a piece may end in the next. No message that is read is longer.
constexpr size_t kLongestMessage = 4096;
// More failures than a person reads; the first counts, and its neighbours supply missing figures.
constexpr size_t kMostFailures = 400;
constexpr size_t kMostHolders = 64;
constexpr size_t kLongestText = 400;
// A detail that other logs print, too ("Limit:"), belongs to a dump whose other lines are this near.
constexpr int64_t kDumpLines = 12;

std::vector<std::string_view> all_heads() {
  std::vector<std::string_view> heads;
  for (const Message& message : messages()) heads.push_back(head_of(message.pattern));
  for (const Setting& setting : settings()) heads.push_back(head_of(setting.pattern));
  std::sort(heads.begin(), heads.end());
  heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
  return heads;
}

struct Readings {
  std::vector<const Message*> messages;
  std::vector<const Setting*> settings;
};

// What to look for, and what may be there: made once, as it depends on the two arrays alone.
struct Index {
  Index() : words(all_heads()), scanner(words), readings(words.size()) {
    const auto readings_of = [&](std::string_view pattern) -> Readings& {
      const auto word = std::lower_bound(words.begin(), words.end(), head_of(pattern));
      return readings[static_cast<size_t>(word - words.begin())];
    };
    for (const Message& message : messages()) readings_of(message.pattern).messages.push_back(&message);
    for (const Setting& setting : settings()) readings_of(setting.pattern).settings.push_back(&setting);
  }
  const std::vector<std::string_view> words;  // heads of messages and settings, sorted, each once
  const WordScanner scanner;
  std::vector<Readings> readings;  // of each word
};

const Index& index() {
  static const Index made;
  return made;
}

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

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
         std::all_of(path.begin(), path.end(),
                     [](char c) { return is_word_character(c) || c == '/' || c == '.' || c == '-'; });
}

}  // namespace

struct LogReader::Match {
  std::vector<Capture> captures;
  int64_t length = 0;
};

void LogReader::clean(std::string_view piece) {
  for (const char c : piece) {
    if (escape_ != Escape::kNone) {
      if (c == '\n') {
        escape_ = Escape::kNone;  // an escape that does not end swallows one line at most
      } else if (escape_ == Escape::kBegun) {
        escape_ = c == '[' ? Escape::kSequence : c == ']' ? Escape::kString : Escape::kNone;
        continue;
      } else {
        const bool ends = escape_ == Escape::kSequence ? (c >= 0x40 && c <= 0x7e) : (c == '\a' || c == '\\');
        if (ends) escape_ = Escape::kNone;
        continue;
      }
    }
    if (lead_byte_) {
      lead_byte_ = false;
      text_ += c == '\xa0' ? ' ' : '\xc2';
      if (c == '\xa0') continue;
    }
    if (c == '\x1b') {
      escape_ = Escape::kBegun;
    } else if (c == '\xc2') {
      lead_byte_ = true;
    } else if (c != '\0') {  // UTF-16 of plain English is every other byte NUL
      text_ += c;
    }
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
  counted_ = end - kept;
}

Log LogReader::finish() {
  scan(text_.size());
  count_lines_to(text_.size());
  log_.line_count = text_.empty() || text_.back() == '\n' ? line_ - 1 : line_;
  return std::move(log_);
}

void LogReader::scan(size_t end) {
  const size_t begin = counted_;
  const size_t stop = std::min(text_.size(), end + kLongestMessage);
  index().scanner.scan(std::string_view(text_).substr(begin, stop - begin), [&](size_t word, size_t at) {
    if (begin + at < end) read_at(word, begin + at);
  });
}

void LogReader::count_lines_to(size_t at) {
  if (at <= counted_) return;
  line_ += std::count(text_.begin() + static_cast<int64_t>(counted_),
                      text_.begin() + static_cast<int64_t>(at), '\n');
  counted_ = at;
}

void LogReader::read_at(size_t word, size_t begin) {
  const std::string_view head = index().words[word];
  if (is_word_character(head[0]) && begin > 0 && is_word_character(text_[begin - 1])) return;
  const std::string_view rest = std::string_view(text_).substr(begin, kLongestMessage);
  const Message* best = nullptr;
  Match best_match;
  for (const Message* message : index().readings[word].messages) {
    std::optional<TemplateMatch> match = match_template(message->pattern, rest);
    if (!match || (best != nullptr && match->length <= best_match.length)) continue;
    best = message;
    best_match = {std::move(match->captures), match->length};
  }
  if (best != nullptr) add(*best, begin, best_match);
  for (const Setting* setting : index().readings[word].settings) {
    if (match_template(setting->pattern, rest)) read_setting(*setting, begin);
  }
}

// Of a line that is longer than any message the part around `at`.
std::string_view LogReader::line_at(size_t at) const {
  const size_t first = at - std::min(at, kLongestMessage);
  const std::string_view around = std::string_view(text_).substr(first, 2 * kLongestMessage);
  const size_t before = at == first ? std::string_view::npos : around.rfind('\n', at - first - 1);
  const size_t begin = before == std::string_view::npos ? 0 : before + 1;
  return around.substr(begin, std::min(around.find('\n', at - first), around.size()) - begin);
}

// "[rank3]: ...", "[default3]:...", "(Worker pid=123) ...", and MPI's "[1,3]<stderr>:..." at the very start:
// up to the closing bracket.
std::string_view LogReader::rank_of(std::string_view line) const {
  constexpr size_t kLongestPrefix = 100;  // of a logger, before the rank
  for (const std::string_view open : {"[rank", "[default", "(pid=", "(Worker", "(RayTrainWorker", "[1,"}) {
    const size_t at = line.substr(0, kLongestPrefix).find(open);
    if (at == std::string_view::npos || (open == "[1," && at > 0)) continue;
    const size_t close = line.find_first_of("])", at);
    if (close != std::string_view::npos) return line.substr(at, close - at + 1);
  }
  return {};
}

void LogReader::read_setting(const Setting& setting, size_t begin) {
  const std::string_view line = line_at(begin);
  const auto before = static_cast<size_t>(text_.data() + begin - line.data());
  for (const std::string_view words : advice_words()) {
    if (line.substr(0, before).find(words) != std::string_view::npos) return;
  }
  log_.settings.emplace(setting.name);
}

void LogReader::add(const Message& message, size_t begin, const Match& match) {
  switch (message.kind) {
    case Kind::kMention:
      log_.mentioned.insert(message.framework);
      return;
    case Kind::kStatedCause:
      count_lines_to(begin);
      return add_stated_cause(message, begin);
    case Kind::kBackground:
      count_lines_to(begin);
      return add_background(message, match);
    case Kind::kDetail:
    case Kind::kPiece:
      count_lines_to(begin);
      return add_detail(message, match);
    default:
      count_lines_to(begin);
      return add_failure(message, begin, match);
  }
}

namespace {

bool is_text(Field field) {
  return field >= Field::kVersion;
}

void keep_word(Failure& failure, const Capture& capture) {
  const std::string word = printable(capture.text.substr(0, kLongestText));
  if (capture.field == Field::kStatus && failure.status.empty()) failure.status = word;
  if (capture.field == Field::kStrategy) failure.strategy = word;
  if (capture.field == Field::kDims) failure.dims = word;
  if (capture.field == Field::kType) failure.type = word;
}

// The exact count of bytes, which follows the rounded size, replaces it; the largest free block is the
// largest of many.
void keep_figures(Failure& failure, const std::vector<Capture>& captures, int64_t line) {
  int64_t pid = 0;
  for (const Capture& capture : captures) {
    if (is_text(capture.field)) {
      keep_word(failure, capture);
    } else if (capture.field == Field::kPid) {
      pid = capture.bytes;
    } else if (capture.field == Field::kHolder) {
      if (failure.holders.size() < kMostHolders) failure.holders.push_back({pid, capture.bytes});
    } else {
      std::optional<Figure>& figure = failure.figures[capture.field];
      if (capture.field == Field::kLargest && figure) {
        figure->bytes = std::max(figure->bytes, capture.bytes);
      } else {
        figure = Figure{capture.bytes, line};
      }
    }
  }
}

}  // namespace

Failure* LogReader::failure_of_line() {
  if (log_.failures.empty() || log_.failures.back().line != line_) return nullptr;
  return &log_.failures.back();
}

void LogReader::keep_version_bound(const Message& message) {
  if (message.at_least == 0) return;
  int64_t& known = log_.at_least[message.framework];
  known = std::max(known, message.at_least);
}

void LogReader::add_failure(const Message& message, size_t begin, const Match& match) {
  Failure* failure = failure_of_line();
  if (failure == nullptr) {
    ++log_.failure_count;
    last_detail_line_ = line_;
    if (log_.failures.size() == kMostFailures) return;
    const std::string_view line = line_at(begin);
    const auto before = static_cast<size_t>(text_.data() + begin - line.data());
    Failure made;
    made.kind = message.kind;
    made.framework = message.framework;
    made.line = line_;
    made.rank = printable(rank_of(line).substr(0, kLongestText));
    made.text = printable(trimmed(line.substr(before, kLongestText)));
    log_.failures.push_back(std::move(made));
    failure = &log_.failures.back();
  } else if (message.weak) {
    return;
  } else if (message.kind < failure->kind) {
    failure->kind = message.kind;
    failure->framework = message.framework;
  }
  keep_version_bound(message);
  keep_figures(*failure, match.captures, line_);
  if (failure->status.empty() && failure->text.find("_STATUS_") != std::string::npos) {
    // "the library was not initialized" is a status, too; the constant is found by its name.
    const size_t at = failure->text.find("CU");
    if (at != std::string::npos)
      failure->status = failure->text.substr(at, failure->text.find_first_of(" ,;)(:", at) - at);
  }
}

void LogReader::add_detail(const Message& message, const Match& match) {
  const bool near = line_ - last_detail_line_ <= kDumpLines;
  const bool of_any_pool = message.kind == Kind::kPiece && message.framework == Framework::kNone;
  Failure* owner = failure_of_line();
  if (owner == nullptr && (near || of_any_pool) &&
      log_.failure_count <= static_cast<int64_t>(kMostFailures)) {
    // The latest failure of the same process; a log without ranks has one.
    const std::string rank = printable(rank_of(line_at(counted_)).substr(0, kLongestText));
    for (auto failure = log_.failures.rbegin(); failure != log_.failures.rend() && owner == nullptr;
         ++failure) {
      if (failure->rank == rank) owner = &*failure;
    }
  }
  if (owner == nullptr && message.kind != Kind::kPiece) return;
  if (owner == nullptr && of_any_pool) return add_background(message, match);
  last_detail_line_ = line_;
  if (owner == nullptr) {  // the head of the message is cut off
    const Message piece{Kind::kAllocation, message.framework, message.pattern, message.at_least};
    return add_failure(piece, counted_, match);
  }
  keep_version_bound(message);
  if (message.framework != Framework::kNone) owner->framework = message.framework;
  keep_figures(*owner, match.captures, line_);
}

void LogReader::add_stated_cause(const Message& message, size_t begin) {
  if (log_.stated.size() == kMostFailures) return;
  const std::string_view line = line_at(begin);
  const auto before = static_cast<size_t>(text_.data() + begin - line.data());
  const std::string_view lead = line.substr(0, before), reason = line.substr(before + message.pattern.size());
  if (!lead.empty() && !lead.ends_with("; ") && !lead.ends_with(": ")) return;
  for (const CauseInfo& row : causes()) {
    if (message.pattern.starts_with(row.name) && message.pattern.size() == row.name.size() + 2) {
      log_.stated.push_back({row.cause, line_, printable(trimmed(reason.substr(0, kLongestText)))});
    }
  }
}

void LogReader::add_background(const Message& message, const Match& match) {
  keep_version_bound(message);
  if (message.framework != Framework::kNone) log_.mentioned.insert(message.framework);
  if (message.pattern.starts_with("cublas may be due")) log_.cublas_hint = true;
  if (message.pattern.starts_with(":\\")) log_.windows = true;
  for (const Capture& capture : match.captures) {
    if (capture.field == Field::kVersion) {
      if (const auto version = parse_version(capture.text))
        log_.versions.emplace(message.framework, *version);
    } else if (capture.field == Field::kScript) {
      if (log_.script.empty() && is_plain_script(capture.text)) log_.script = capture.text;
    } else if (!is_text(capture.field) && !log_.background[capture.field]) {
      log_.background[capture.field] = Figure{capture.bytes, line_};
    }
  }
}

Log read_log(std::string_view text) {
  LogReader reader;
  reader.feed(text);
  return reader.finish();
}

}  // namespace headroom::explain
