#include "tools/run/verdict.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/cause.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/process/process.h"
#include "base/table.h"
#include "base/text.h"
#include "tools/run/facts.h"

namespace headroom {
namespace {

constexpr size_t kMostNext = 2;

// PyTorch lists all processes of the card. Where a limit refused, strangers are not in its figures, and what
// the run's own processes held is known exactly: without "Process 17 has 520.00 MiB memory in use. ".
std::string without_processes(const std::string& log) {
  constexpr std::string_view kBegin = "Process ", kEnd = " memory in use. ";
  std::string kept;
  size_t at = 0;
  for (size_t begin; (begin = log.find(kBegin, at)) != std::string::npos;) {
    const size_t end = begin + std::min(log.substr(begin, 80).find(kEnd), log.size());
    const bool is_listed = end < log.size() && begin + kBegin.size() < log.size() &&
                           std::isdigit(static_cast<unsigned char>(log[begin + kBegin.size()])) != 0;
    kept += log.substr(at, begin - at);
    if (!is_listed) kept += kBegin;
    at = is_listed ? end + kEnd.size() : begin + kBegin.size();
  }
  return kept + log.substr(at);
}

// What `headroom explain` finds in the end of the program's stderr; a child of its own, as commands know
// nothing of each other.
Explained explain_log(const std::string& log) {
  Explained explained;
  std::array<char, 32> path{"/tmp/headroom-log-XXXXXX"};
  const int file = mkstemp(path.data());
  if (file < 0) return explained;
  const ssize_t written = write(file, log.data(), log.size());
  close(file);
  ChildResult child{}, figures{};
  if (written == static_cast<ssize_t>(log.size())) {
    child = run_child(own_path(), {"explain", "--color", "never", path.data()});
    figures = run_child(own_path(), {"explain", "--json", path.data()});
  }
  unlink(path.data());
  const nlohmann::json facts = nlohmann::json::parse(figures.out, nullptr, false);
  if (facts.is_object() && facts.contains("figures")) {
    explained.cause_name = facts.value("cause", "");
    explained.requested = facts["figures"].value("requested", int64_t{0});
    const nlohmann::json phase = facts.value("phase", nlohmann::json::array());
    explained.has_figures_alone = explained.cause_name == name_of(Cause::kExhausted) && phase.empty();
    explained.makes_state = std::find(phase.begin(), phase.end(), "first_update") != phase.end();
  }
  std::istringstream lines(child.out);
  bool in_cause = true;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) in_cause = false;
    const bool is_step = line.starts_with("next: ");
    if (in_cause && !is_step) explained.cause.push_back(line);
    if (is_step && line.find(path.data()) == std::string::npos) explained.next.push_back(line);
  }
  if (!explained.cause.empty() && explained.cause.front().starts_with("No failure found")) explained = {};
  return explained;
}

// What `headroom report` finds in PyTorch's snapshot: the sentence with the user's line, and what to do.
Explained explain_snapshot(const std::string& text) {
  const nlohmann::json report = nlohmann::json::parse(text, nullptr, false);
  if (!report.is_object() || !report.contains("verdict")) return {};
  const nlohmann::json& verdict = report["verdict"];
  if (!verdict.is_object()) return {};
  if (verdict.value("findings", nlohmann::json()).empty())
    return {
        .cause = {}, .next = {}, .moment = verdict.contains("failure") ? verdict.value("sentence", "") : ""};
  const nlohmann::json& first = verdict["findings"][0];
  return {.cause = {verdict.value("sentence", "")},
          .next = {"next: " + first.value("advice", "")},
          .bytes = first.value("bytes", int64_t{0}),
          .is_kept = is_kept(first.value("cause", "")),
          .cause_name = first.value("cause", "")};
}

// The process that was refused first: where several fail, the others fail because of it.
const guard::Slot* refused_first(const guard::Account& account) {
  const guard::Slot* latest = nullptr;
  for (const guard::Slot& slot : account.slots) {
    if (slot.refusals == 0) continue;
    if (slot.owner == account.first_refusal_of) return &slot;
    if (latest == nullptr || slot.refused_ns < latest->refused_ns) latest = &slot;
  }
  return latest;
}

std::string context_text(const guard::Account& account) {
  const guard::Slot* slot = refused_first(account);
  const int64_t others = slot == nullptr ? 0 : slot->refused_others.load();
  for (const guard::Card& card : account.cards) {
    if (card.known != 2 || card.context_refused == 0) continue;
    if (others >= card.limit_bytes / 2) {
      return fmt::format(
          "other-process: other processes of this command hold {} of the limit of {}, and each needs {} "
          "before it "
          "allocates anything",
          format_bytes(others), format_bytes(card.limit_bytes), format_bytes(card.context_refused));
    }
    return fmt::format(
        "a process needs at least {} on this card before it allocates anything; the limit is {}",
        format_bytes(card.context_refused), format_bytes(card.limit_bytes));
  }
  return {};
}

std::string refusal_text(const guard::Account& account) {
  const guard::Slot* slot = refused_first(account);
  if (slot == nullptr) return {};
  int64_t count = 0;
  for (const guard::Slot& other : account.slots) count += other.refusals;
  const int64_t limit = account.cards[slot->refused_card].limit_bytes;
  return fmt::format("{} {} refused by the limit of {}, the last of them {}", thousands(count),
                     count == 1 ? "request was" : "requests were", format_bytes(limit),
                     format_bytes(slot->refused_bytes));
}

// The other processes of the run, where they held more than a quarter of the limit when a request of that
// process was refused.
Explained explain_others(const guard::Account& account, const guard::Slot* slot) {
  if (slot == nullptr) return {};
  const int64_t limit = account.cards[slot->refused_card].limit_bytes, others = slot->refused_others;
  if (others < limit / 4 || others < slot->refused_bytes) return {};
  return {.cause = {fmt::format("other-process: other processes of this command hold {} of the limit of {}",
                                format_bytes(others), format_bytes(limit))},
          .next = {"next: headroom who  # beside the next run: what each of them holds"},
          .bytes = others};
}

// "train.py:22 in read, called at train.py:47 in main": of the last traceback of Python that has frames
// outside libraries, the innermost one and the functions that called it. Files that a library wrote, and the
// launcher's own traceback, have none.
std::string own_line(const std::string& log) {
  constexpr std::string_view kFile = "  File \"", kLine = "\", line ", kIn = ", in ";
  constexpr size_t kMostFrames = 4;
  std::istringstream lines(log);
  std::vector<std::string> found;  // the outermost first
  std::string folder;
  bool is_new = true;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Traceback (most recent call last)") != std::string::npos) is_new = true;
    const size_t begin = line.find(kFile), number = line.find(kLine), in = line.find(kIn);
    if (begin == std::string::npos || number == std::string::npos || in == std::string::npos) continue;
    const std::string path = line.substr(begin + kFile.size(), number - begin - kFile.size());
    const bool is_library =
        path.starts_with("<") || path.ends_with(".pyx") || path.ends_with("/headroom_hook.py") ||
        path.ends_with("/sitecustomize.py") || path.find("/bin/") != std::string::npos ||
        path.find("-packages/") != std::string::npos || path.find("/lib/python3") != std::string::npos;
    if (is_library) continue;
    // The program's folder is that of the outermost frame; what is written at run time lies elsewhere.
    const std::string own = path.substr(0, path.rfind('/') + 1);
    if (is_new) folder = own;
    if (!is_new && own != folder && own.starts_with("/tmp/") && !folder.starts_with("/tmp/")) continue;
    if (is_new) found.clear();
    is_new = false;
    const size_t digits = number + kLine.size();
    found.push_back(fmt::format("{}:{} in {}", path, line.substr(digits, in - digits),
                                trimmed(line.substr(in + kIn.size()))));
  }
  std::string text;
  for (size_t i = 0; i < std::min(found.size(), kMostFrames); ++i) {
    const std::string& frame = found[found.size() - 1 - i];
    if (i > 0 && frame.ends_with(" in <module>")) break;
    text += i == 0 ? frame : ", called at " + frame.substr(frame.rfind('/') + 1);
  }
  return printable(text, 300);
}

// The process beside which the others held most when it was refused. JAX reserves less when it is refused, so
// the process that is refused first need not be the one that fails.
const guard::Slot* most_beside(const guard::Account& account) {
  const auto most = std::max_element(std::begin(account.slots), std::end(account.slots),
                                     [](const guard::Slot& a, const guard::Slot& b) {
                                       return (a.refusals == 0 ? 0 : a.refused_others.load()) <
                                              (b.refusals == 0 ? 0 : b.refused_others.load());
                                     });
  return most->refusals == 0 ? nullptr : most;
}

int64_t smallest_limit(const guard::Account& account) {
  int64_t least = guard::kNoLimit;
  for (const guard::Card& card : account.cards) {
    if (card.known == 2) least = std::min(least, card.limit_bytes.load());
  }
  return least;
}

// True if a program that had run out of memory tried again while it handled the error, which holds the first
// try's tensors.
bool tried_again(const std::string& log) {
  const size_t again = log.find("During handling of the above exception, another exception occurred");
  return again != std::string::npos && log.find("OutOfMemoryError") < again &&
         log.find("OutOfMemoryError", again) != std::string::npos;
}

// The cause that explains most: what the program keeps, libraries and processes beside it, what the snapshot
// shows, and the log alone.
Explained find_cause(const Failure& failure) {
  const guard::Slot* slot = refused_first(failure.account);
  const std::string& log = failure.ended.errors;
  Explained logged = explain_log(slot == nullptr ? log : without_processes(log));
  // A program may recover from running out of memory, and fail later for a reason of its own.
  const bool ran_out =
      log.find("out of memory") != std::string::npos || log.find("Out of memory") != std::string::npos ||
      log.find("Traceback") == std::string::npos || logged.cause_name == name_of(Cause::kAmbiguous);
  if (!ran_out || tried_again(log)) return logged;
  const std::shared_ptr<const Facts> facts = read_facts(failure.facts);
  const int64_t needed = slot == nullptr ? 0 : slot->refused_bytes.load();
  Explained found = explain_snapshot(failure.report);
  int64_t peak = 0;
  for (const guard::Card& card : failure.account.cards) peak = std::max(peak, card.peak_bytes.load());
  // Where the program stopped tells more than the pieces of a pool; where only figures are told, pieces that
  // are much of what it has tell more.
  const bool is_in_pieces = logged.has_figures_alone && found.bytes >= peak / 4;
  if (found.cause_name == name_of(Cause::kFragmentation) && !logged.cause.empty() &&
      logged.cause_name != name_of(Cause::kFragmentation) && !is_in_pieces)
    found = {};
  name_backward(*facts, found);
  name_kept(*facts, peak, found);
  name_hooks(*facts, found);
  const bool is_vague = found.cause.empty() || found.cause_name == name_of(Cause::kFragmentation);
  if (const Explained weights = explain_untrained(*facts, peak);
      !weights.cause.empty() && (is_vague || (!found.is_kept && weights.bytes > found.bytes)))
    found = weights;
  if (found.cause.empty()) found = explain_doubles(*facts, peak);
  if (found.cause.empty()) found = explain_grown(*facts, peak / ranks_of(*facts) / 10);
  if (const Explained loaded = explain_loaded(*facts, std::max(peak / 5, found.bytes));
      !loaded.cause.empty() && !found.is_kept && (found.cause.empty() || found.bytes > 0))
    found = loaded;
  if (found.cause.empty()) found = explain_replaced(*facts, std::max(needed, peak / 2));
  Explained others = explain_others(failure.account, slot);
  name_start(*facts, others);
  if (!others.cause.empty()) name_largest(*facts, peak / 5, others);
  const auto explains_more = [&](const Explained& other, int64_t least) {
    return other.bytes > std::max(least, needed) && other.bytes >= peak / 4;
  };
  // Each rank of a run keeps, or grows, as this one does: that they share a card tells less.
  const bool is_of_ranks =
      ranks_of(*facts) > 1 && (found.is_kept || found.cause_name == name_of(Cause::kGrowingBatch));
  // What is kept is no cause where something else is most of what is held.
  for (const Explained& other : {explain_libraries(*facts), is_of_ranks ? Explained{} : others}) {
    if (explains_more(other, found.is_kept ? 4 * found.bytes : found.bytes)) found = other;
  }
  // Cycles say why something is kept.
  const Explained cycles = explain_cycles(*facts);
  if (explains_more(cycles, found.is_kept ? found.bytes / 2 : found.bytes)) found = cycles;
  if (found.cause.empty()) found = explain_models(*facts, peak);
  if (found.cause.empty()) {
    found = explain_others(failure.account, most_beside(failure.account));
    name_start(*facts, found);
  }
  if (found.cause_name == name_of(Cause::kGrowingBatch)) name_growth(*facts, found);
  if (found.cause_name == name_of(Cause::kOptimizerState)) {
    name_trained(*facts, found);
    name_evaluating(*facts, peak, found);
  }
  if (found.cause.empty()) {
    const int64_t limit = smallest_limit(failure.account);
    // A framework's own pool may refuse what the limit would have refused.
    if (slot == nullptr && logged.cause_name == name_of(Cause::kExhausted) && logged.requested > limit) {
      logged.cause = {fmt::format("too-large-for-device: one request of {} cannot fit in the limit of {}",
                                  format_bytes(logged.requested), format_bytes(limit))};
    }
    // The log has figures alone, and the snapshot the operation as well.
    if (logged.has_figures_alone && !found.moment.empty()) logged.cause = {found.moment};
    if (logged.makes_state) name_evaluating(*facts, peak, logged);
    name_request(*facts, logged);
    const size_t lines = logged.cause.size();
    name_largest(*facts, peak / 4, logged);
    if (logged.cause.size() == lines) name_doubles(*facts, logged);
    if (logged.cause.size() == lines) name_weights(*facts, peak / 2, logged);
    return logged;
  }
  // No smaller batch or other allocator mends what is kept, and no step is told twice.
  const bool has_segments =
      !found.next.empty() && found.next.front().find("expandable_segments") != std::string::npos;
  for (const std::string& step : logged.next) {
    const bool is_again = has_segments && step.find("expandable_segments") != std::string::npos;
    if (!found.is_kept && !is_again) found.next.push_back(step);
  }
  return found;
}

}  // namespace

int64_t killed_for_memory() {
  int64_t count = 0;
  for (const char* path : {"/proc/vmstat", "/sys/fs/cgroup/memory.events"}) {
    std::ifstream file(path);
    std::string name;
    for (int64_t value = 0; file >> name >> value;) {
      if (name == "oom_kill") count += value;
    }
  }
  return count;
}

std::string verdict_of_command(const Failure& failure) {
  const int status = failure.ended.status;
  std::vector<std::string> lines, next;
  std::string own;
  if (const std::string context = context_text(failure.account); !context.empty()) {
    Explained others{.cause = {context}, .next = {}};
    if (context.starts_with("other-process")) {
      others.next = {"next: fewer processes on the GPU: workers that load data need none  # num_workers=0"};
      name_start(*read_facts(failure.facts), others);
    }
    lines = std::move(others.cause);
    next = std::move(others.next);
  } else {
    Explained found = find_cause(failure);
    own = found.line;
    lines = std::move(found.cause);
    next = std::move(found.next);
    if (lines.size() > 4) lines.resize(4);
    const bool is_killed = (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
                           (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
    if (is_killed && failure.killed_for_memory) {
      lines.insert(lines.begin(), "host-memory: the system's out-of-memory killer ended the program");
    } else if (WIFSIGNALED(status) && lines.empty()) {
      lines.push_back(fmt::format("ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status))));
    }
    std::string line = moment_of(*read_facts(failure.facts));
    if (line.empty()) line = own_line(failure.ended.errors);
    if (!line.empty()) lines.push_back((own.empty() ? "at " : "memory ran out at ") + line);
    if (const std::string refusal = refusal_text(failure.account); !refusal.empty()) lines.push_back(refusal);
  }
  if (!failure.kept_snapshot.empty()) {
    next.resize(std::min(next.size(), kMostNext - 1));
    next.push_back("next: headroom report " + shell_word(failure.kept_snapshot));
  } else if (!failure.traces.empty()) {
    next.insert(next.begin(), "next: headroom report " + shell_word(failure.traces.front()));
  } else if (refused_first(failure.account) != nullptr && next.size() < kMostNext) {
    next.push_back("next: headroom run --record run.trace -- " + failure.command);
  }
  if (next.size() > kMostNext) next.resize(kMostNext);
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  for (const std::string& line : next) text += line + "\n";
  return text;
}

}  // namespace headroom
