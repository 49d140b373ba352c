// Implements what LogReader makes of the messages of failures: failures, their figures, and what makes none
// of them.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tools/explain/characters.h"
#include "tools/explain/line_parts.h"
#include "tools/explain/log_reader.h"
#include "tools/explain/statements.h"

namespace headroom::explain {
namespace {

// More failures than a person reads; the first counts, and its neighbors supply missing figures.
constexpr size_t kMostFailures = 400;
constexpr size_t kMostHolders = 64;
// A detail that other logs print, too ("Limit:"), belongs to a dump whose other lines are this near.
constexpr int64_t kDumpLines = 12;
// A program's work when it failed is told by the traceback right before.
constexpr int64_t kTracebackLines = 90;
// Failures that the program recovered from are this near before the line that says so.
constexpr int64_t kRecoveryLines = 40;
constexpr int64_t kVagueRecoveryLines = 3;  // "retrying" may be said of anything
constexpr std::string_view kTraceback = "Traceback ";
// From one line of a message to its next.
constexpr int64_t kContinuedLines = 2;

bool is_of_memory(Kind kind) {
  return (kind >= Kind::kLimit && kind <= Kind::kBareRefusal) || kind == Kind::kSomeMemory;
}

void keep_word(Failure& failure, const Capture& capture) {
  const std::string word = printable(capture.text.substr(0, LogReader::kLongestText));
  if (capture.field == Field::kStatus && failure.status.empty()) failure.status = word;
  if (capture.field == Field::kStrategy) failure.strategy = word;
  if (capture.field == Field::kDims) failure.dims = word;
  if (capture.field == Field::kType) failure.type = word;
  if (capture.field == Field::kOp && failure.op.empty()) failure.op = word;
  if (capture.field == Field::kSource && failure.source.empty()) failure.source = word;
  if (capture.field == Field::kShape && failure.shape.empty()) failure.shape = word;
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
      const Figure made{capture.bytes, line, capture.precision};
      if (capture.field == Field::kLargest) {
        // TensorFlow prints 0 without having looked.
        if (capture.bytes > 0 && (!figure || figure->bytes < capture.bytes)) figure = made;
      } else if (capture.field == Field::kBuffer || capture.field == Field::kCount) {
        if (!figure) figure = made;  // lists begin with the largest
      } else {
        figure = made;
      }
    }
  }
}

}  // namespace

Failure* LogReader::failure_of_line() {
  if (log_.failures.empty() || log_.failures.back().line != line_) return nullptr;
  return &log_.failures.back();
}

// Some programs print messages first and their traceback below.
void LogReader::keep_phase_below(std::string_view phase) {
  constexpr int64_t kAbove = 5;  // lines from a message to the next, or to the traceback
  if (line_ - last_traceback_line_ > kTracebackLines) return;
  int64_t below = last_traceback_line_;
  for (auto failure = log_.failures.rbegin(); failure != log_.failures.rend(); ++failure) {
    const int64_t above = below - failure->line;
    if (above < 1 || above > kAbove || failure->is_exception || failure->rank != rank_here()) return;
    failure->phases[phase] = line_;
    below = failure->line;
  }
}

// People quote a message first and the frames that lead to it below, without the traceback's head.
void LogReader::keep_phase_of_frame(std::string_view phase) {
  constexpr int64_t kBelow = 12;      // lines
  constexpr int64_t kFrameLines = 1;  // the code stands on the line after its frame
  if (log_.failures.empty() || line_ - last_frame_line_ > kFrameLines) return;
  Failure& failure = log_.failures.back();
  const bool is_another = last_traceback_line_ > failure.line;
  if (failure.has_frames || is_another || line_ - failure.line > kBelow || last_frame_line_ <= failure.line)
    return;
  if (failure.rank == rank_here()) failure.phases[phase] = line_;
}

void LogReader::keep_version_bound(const Message& message) {
  if (message.at_most > 0) {
    int64_t& newest = log_.at_most.try_emplace(message.framework, message.at_most).first->second;
    newest = std::min(newest, message.at_most);
  }
  if (message.at_least == 0) return;
  int64_t& oldest = log_.at_least[message.framework];
  oldest = std::max(oldest, message.at_least);
}

// The message's own words; those that many print say more with what stands before them.
std::string LogReader::text_of(const Message& message, size_t begin) const {
  const bool is_vague = message.kind == Kind::kSomeMemory || message.kind == Kind::kOtherError;
  const std::string_view lead = is_vague ? before(begin, kLongestText) : std::string_view();
  return printable(trimmed(std::string(lead) + std::string(behind(begin, kLongestText - lead.size()))));
}

// Takes a few hundred bytes before and after.
std::string LogReader::lines_around(size_t at) const {
  constexpr size_t kBefore = 800, kBehind = 400;
  const size_t first = at - std::min(at, kBefore);
  return printable(text_.substr(first, at - first + kBehind), kBefore + kBehind);
}

void LogReader::add_failure(const Message& message, size_t begin, const Match& match) {
  if (message.is_a_shells && !is_shells_word(begin, match)) return;
  if (message.kind == Kind::kOtherError) {
    add_close_line(1, begin);
    if (message.pattern.starts_with(kTraceback)) last_traceback_line_ = line_;
  }
  const size_t end = begin + static_cast<size_t>(match.length);
  if (message.is_exit_code && !is_exit_code(before(begin, 24), behind(end, 8))) return;
  const bool goes_on =
      end < text_.size() && is_word_character(text_[end]) && is_word_character(text_[end - 1]);
  if (message.weak && goes_on) return;  // a part of a longer word
  Failure* failure = failure_of_line();
  const bool is_longer = failure != nullptr && failure_begin_ == erased_ + begin &&
                         failure_length_ < match.length && !message.weak;
  if (failure == nullptr) {
    // A kind that counts only if there is nothing else is kept once.
    if (message.kind == Kind::kOtherError || message.kind == Kind::kSomeMemory) {
      const auto known = std::ranges::find_if(log_.failures, [&](const Failure& other) {
        return other.kind == message.kind || other.kind < Kind::kOtherError;
      });
      if (known != log_.failures.end()) {
        if (message.kind == Kind::kOtherError && log_.failures.size() == 1)
          keep_end_of_traceback(message, begin);
        return;
      }
    }
    if (is_hypothetical(message, begin, match)) return;
    if (message.kind != Kind::kOtherError) ++log_.failure_count;
    last_detail_line_ = line_;
    if (log_.failures.size() == kMostFailures) return;
    Failure made;
    made.kind = message.kind;
    made.framework = message.framework;
    made.line = line_;
    made.rank = rank_here();
    if (made.rank.find("pid=") != std::string::npos && log_.pids.size() < kMostPids)
      log_.pids.insert(number_of_rank(made.rank).value_or(0));
    made.text = text_of(message, begin);
    made.weak = message.weak;
    made.has_frames = line_ - last_frame_line_ <= kTracebackLines;
    if (line_ - handling_line_ <= kTracebackLines) made.handling_line = handling_line_;
    keep_phases(made);
    log_.failures.push_back(std::move(made));
    failure = &log_.failures.back();
  } else if (message.weak && failure->weak && failure->kind == Kind::kHost &&
             message.kind == Kind::kAllocation) {
    failure->kind = message.kind;  // "MemoryError: ... cudaErrorMemoryAllocation": the driver's word is exact
  } else if (message.weak && (!failure->weak || message.kind >= failure->kind)) {
    if (message.kind == failure->kind && !failure->figures.any())
      keep_figures(*failure, match.captures, line_);
    return;
  } else if (message.kind < failure->kind || failure->weak || is_longer) {
    if (failure->kind == Kind::kOtherError) ++log_.failure_count;
    failure->kind = message.kind;
    failure->framework = message.framework;
    if (failure->weak) failure->text = text_of(message, begin);
    failure->weak = message.weak;
  }
  failure->is_exception = failure->is_exception || is_exception_at(begin);
  is_decided_ = is_decided_ || (failure->kind < Kind::kHostLikely && failure->kind != Kind::kNotAFailure);
  failure_begin_ = erased_ + begin;
  failure_length_ = match.length;
  if (failure->kind == Kind::kSomeMemory && failure->around.empty()) failure->around = lines_around(begin);
  keep_version_bound(message);
  keep_figures(*failure, match.captures, line_);
  for (const Capture& capture : match.captures) {
    if (capture.field == Field::kShare) log_.share = printable(capture.text);
  }
  if (failure->status.empty() && failure->text.find("_STATUS_") != std::string::npos) {
    // "the library was not initialized" is also a status; the constant is found by its name.
    const size_t at = failure->text.find("CU");
    if (at != std::string::npos)
      failure->status = failure->text.substr(at, failure->text.find_first_of(" ,;)(:", at) - at);
  }
}

// An error that begins with "Traceback" is named by the exception at the traceback's end.
void LogReader::keep_end_of_traceback(const Message& message, size_t begin) {
  Failure& failure = log_.failures.front();
  if (failure.kind != Kind::kOtherError || !failure.text.starts_with(kTraceback)) return;
  if (rank_here() != failure.rank) return;
  failure.text = text_of(message, begin);
  failure.line = line_;
  last_detail_line_ = line_;
  keep_phases(failure);
}

void LogReader::keep_phases(Failure& failure) const {
  for (const auto& [phase, last_line] : phase_lines_) {
    if (line_ - last_line <= kTracebackLines) failure.phases[phase] = last_line;
  }
}

void LogReader::add_detail(const Message& message, const Match& match) {
  const bool near = line_ - last_detail_line_ <= kDumpLines;
  const bool of_any_pool = message.kind == Kind::kPiece && message.framework == Framework::kNone;
  Failure* owner = failure_of_line();
  if (owner == nullptr && (near || of_any_pool) &&
      log_.failure_count <= static_cast<int64_t>(kMostFailures)) {
    // The latest failure of the same process; a log without ranks has one.
    const std::string& rank = rank_here();
    for (auto failure = log_.failures.rbegin(); failure != log_.failures.rend() && owner == nullptr;
         ++failure) {
      if (failure->rank == rank) owner = &*failure;
    }
    // Only the first line of a message may begin with the rank.
    const bool continues = owner == nullptr && rank.empty() && !log_.failures.empty() &&
                           line_ - last_detail_line_ <= kContinuedLines;
    if (continues) owner = &log_.failures.back();
  }
  if (owner == nullptr && message.kind != Kind::kPiece) return;
  if (owner == nullptr && of_any_pool) return add_background(message, counted_, match);
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
  const std::string_view lead = line.substr(0, before),
                         reason = line.substr(std::min(before + message.pattern.size(), line.size()));
  if (!lead.empty() && !lead.ends_with("; ") && !lead.ends_with(": ")) return;
  for (const CauseInfo& row : causes()) {
    if (message.pattern.starts_with(row.name) && message.pattern.size() == row.name.size() + 2) {
      log_.stated.push_back({row.cause, line_, printable(trimmed(reason.substr(0, kLongestText)))});
    }
  }
}

// "Killed" where a shell prints it: after what a logger puts first, and before nothing or the job's command.
bool LogReader::is_shells_word(size_t begin, const Match& match) const {
  constexpr size_t kNear = 64;
  const std::string_view rest = behind(begin + static_cast<size_t>(match.length), kNear);
  const std::string_view lead = trimmed(before(begin, kNear));
  const std::string_view last = lead.substr(lead.find_last_of(" \t") + 1);
  // "run.sh: line 8: 34475 Killed python train.py"
  const bool is_bashs =
      lead.find("line ") != std::string_view::npos && !last.empty() && std::ranges::all_of(last, is_digit);
  if (is_bashs) return true;
  const bool ends = trimmed(rest).empty() || rest.starts_with("  ") || rest.starts_with("\t") ||
                    trimmed(rest) == ": 9" || trimmed(rest) == ".";
  if (!ends) return false;
  return lead.empty() || std::string_view(":]|)>").find(lead.back()) != std::string_view::npos ||
         last == "F" || last == "P" || std::ranges::any_of(last, is_digit);
}

// A tip, a comment or a check in a program's text; a message with figures is a message all the same.
bool LogReader::is_hypothetical(const Message& message, size_t begin, const Match& match) const {
  if (message.kind == Kind::kHostLikely && is_denied(before(begin, 16))) return true;
  if (message.weak && before(begin, 16).ends_with("raise ")) return true;  // the program's text
  // A notebook's head of a traceback, at whose end the same error stands with its message.
  if (message.weak && message.kind == Kind::kHost &&
      behind(begin, 120).find(" Traceback (most recent") != std::string_view::npos)
    return true;
  if (message.kind == Kind::kOtherError && behind(begin, 80).find(" 0 errors") != std::string_view::npos)
    return true;
  if (message.kind == Kind::kOtherError && message.pattern.ends_with(": ") &&
      is_measured(behind(begin + static_cast<size_t>(match.length), 32)))
    return true;
  const bool is_of_memory = message.kind == Kind::kSomeMemory || message.kind == Kind::kAllocation ||
                            message.kind == Kind::kBareRefusal ||
                            (message.weak && message.kind == Kind::kHost) || message.pattern == "OOMKilled";
  if (is_of_memory && match.captures.empty()) {
    const std::string_view rest = behind(begin + static_cast<size_t>(match.length), 120);
    const bool is_whole = rest.find("Tried to allocate") != std::string_view::npos;
    if (!is_whole && is_only_spoken_of(before(begin, 120), rest)) return true;
    const bool is_a_state =
        message.kind == Kind::kSomeMemory &&
        (message.pattern.find("emory") != std::string_view::npos || message.pattern.starts_with("OOM"));
    if (is_a_state && !is_stated(before(begin, 120), rest)) return true;
  }
  if (!match.captures.empty() || message.kind > Kind::kOtherError || message.kind < Kind::kHost) return false;
  constexpr size_t kNear = 80;
  const std::string_view lead = before(begin, kNear), rest = behind(begin, kNear);
  if (rest.find("\" in str(") != std::string_view::npos || rest.find("' in str(") != std::string_view::npos)
    return true;
  if (!rest.empty() && rest.find(" errors") == static_cast<size_t>(match.length)) return true;
  const std::span<const std::string_view> tips = log_.rules->hypothetical_words();
  return std::ranges::any_of(
      tips, [&](std::string_view words) { return lead.find(words) != std::string_view::npos; });
}

// The program found another way: what it could not allocate before did no harm. That it tries one is a plan
// only, where an exception ended what it did before.
void LogReader::add_recovery(const Message& message) {
  const std::string& rank = rank_here();
  for (auto failure = log_.failures.rbegin(); failure != log_.failures.rend(); ++failure) {
    if (line_ - failure->line > (message.weak ? kVagueRecoveryLines : kRecoveryLines)) break;
    if (!is_of_memory(failure->kind) || failure->rank != rank) continue;
    failure->fell_back = message.kind == Kind::kFallback && failure->is_exception;
    if (failure->fell_back) continue;
    failure->kind = Kind::kNotAFailure;
    is_decided_ = false;
  }
}

// "RuntimeError: CUDA out of memory", or the end of a traceback: what ended a process, unless it caught it.
bool LogReader::is_exception_at(size_t begin) const {
  if (line_ - last_traceback_line_ <= kTracebackLines) return true;
  constexpr size_t kLongestName = 120;
  const std::string_view name = trimmed(before(begin, kLongestName));
  return behind(begin, kLongestName).starts_with("torch.") || name.ends_with("Error:") ||
         name.ends_with("Exception:");
}

// A training that goes on after a warning has coped with it. What an exception ended does not go on: later
// steps are those of another process or run.
void LogReader::add_progress(bool is_of_server) {
  constexpr int64_t kSteps = 2, kMostWarnings = 16;
  if (line_ == last_progress_line_) return;
  last_progress_line_ = line_;
  const std::string& rank = rank_here();
  int64_t warnings = 0;
  for (auto failure = log_.failures.rbegin(); failure != log_.failures.rend(); ++failure) {
    if (++warnings > kMostWarnings) return;
    if (failure->rank != rank || !is_of_memory(failure->kind)) continue;
    const bool ended = (failure->is_exception || is_of_server) && !failure->fell_back;
    if (ended || failure->line == line_) return;
    if (++failure->progress < kSteps) continue;
    failure->kind = Kind::kNotAFailure;
    is_decided_ = false;
  }
}

}  // namespace headroom::explain
