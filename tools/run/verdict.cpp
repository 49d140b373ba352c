#include "tools/run/verdict.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <sstream>
#include <string_view>
#include <utility>
#include <variant>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/process/process.h"
#include "base/process/temporary_folder.h"
#include "base/table.h"
#include "base/text.h"
#include "sheet/datum.h"
#include "tools/run/candidates.h"

namespace headroom {
namespace {

constexpr size_t kMostNext = 2;

// PyTorch lists all processes of the card. Where a limit refused, strangers are not in its figures, and what
// the run's own processes held is known exactly: without "Process 17 has 520.00 MiB memory in use. ".
std::string without_processes(const std::string& log) {
  static const std::regex kListed("Process [0-9][^\\n]{0,60} memory in use\\. ");
  return std::regex_replace(log, kListed, "");
}

// A child of its own, as commands know nothing of each other. The bytes of the cause are those that recorded
// graphs hold, if that is the cause.
Logged explain_log(const std::string& log) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/log";
  (std::ofstream(path) << log).flush();
  const Facts facts = Facts::parse(run_child(own_path(), {"explain", "--json", path}).out);
  Logged logged;
  logged.cause_name = facts.text("cause");
  if (logged.cause_name.empty() || logged.is(Cause::kNone)) return {};
  const Facts figures = facts.part("figures");
  logged.requested = figures.number("requested");
  const bool is_full = logged.is(Cause::kExhausted);
  const std::string activity = facts.text("activity");
  logged.has_graphs = activity == "graph_pools";
  const auto lists = [&](const char* list, std::string_view name) {
    const std::vector<Facts> names = facts.parts(list);
    return std::any_of(names.begin(), names.end(), [&](const Facts& each) { return each.text() == name; });
  };
  logged.is_large = is_full && activity.empty() && lists("facts", "large_request");
  logged.is_bare = is_full && activity.empty() && figures.has("allocated") && !logged.is_large;
  logged.has_figures_alone = is_full && facts.parts("phase").empty() && !logged.has_graphs;
  logged.makes_state = lists("phase", "first_update");
  logged.shows_attention = lists("facts", "attention_shown");
  const std::string reason = facts.text("reason");
  const size_t end = reason.find("; ");  // the figure that decides stands in the first sentence
  logged.cause = {logged.cause_name + ": " + reason.substr(0, end) + (end < reason.size() ? "." : "")};
  for (const Facts& step : facts.parts("next")) {
    if (step.text().find(path) == std::string::npos) logged.next.push_back("next: " + step.text());
  }
  if (logged.has_graphs) logged.bytes = figures.number("private");
  // A limit of the program's own denies what is free.
  if (logged.is(Cause::kLimit)) logged.bytes = figures.number("free");
  return logged;
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

// "train.py:22 in read, called at train.py:47 in main", from frames, the innermost first.
std::string place_of(const std::vector<std::string>& frames) {
  std::string text;
  for (const std::string& frame : frames) {
    if (!text.empty() && frame.ends_with(" in <module>")) break;
    text += text.empty() ? frame : ", called at " + frame.substr(frame.rfind('/') + 1);
  }
  return text;
}

// The place of the last traceback of Python that has frames outside libraries. Files that a library wrote,
// and the launcher's own traceback, have none.
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
  std::reverse(found.begin(), found.end());
  found.resize(std::min(found.size(), kMostFrames));
  return printable(place_of(found), 300);
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

// The place of the request that failed in one of several ranks: the log has a traceback of each. Empty for a
// single process.
std::string moment_of(const Facts& facts) {
  std::vector<std::string> frames;
  for (const Facts& line : facts.part("moment").parts("lines")) frames.push_back(line.text());
  return ranks_of(facts) < 2 ? "" : place_of(frames);
}

// True if a program that had run out of memory tried again while it handled the error, which holds the first
// try's tensors.
bool tried_again(const std::string& log) {
  const size_t again = log.find("During handling of the above exception, another exception occurred");
  return again != std::string::npos && log.find("OutOfMemoryError") < again &&
         log.find("OutOfMemoryError", again) != std::string::npos;
}

// Figures that all causes are measured by.
RunFigures figures_of(const guard::Account& account, const Facts& report, const Logged& logged) {
  RunFigures run;
  for (const guard::Card& card : account.cards) run.peak = std::max(run.peak, card.peak_bytes.load());
  if (const guard::Slot* slot = most_beside(account); slot != nullptr) {
    run.limit = account.cards[slot->refused_card].limit_bytes;
    run.others = slot->refused_others;
    const Facts failure = report.part("verdict").part("failure");
    const int64_t needed = failure.number("driver_bytes") + failure.number("live_bytes") + run.others;
    run.lacking = std::max({int64_t{0}, needed - run.limit, logged.requested - run.limit});
  }
  run.has_phase = !logged.cause.empty() && !logged.has_figures_alone && !logged.is(Cause::kFragmentation);
  return run;
}

// The log's own sentence, where nothing explains it, with what the facts say of the request.
Candidate explain_request(const Failure& failure, const Facts& facts, const Facts& report,
                          const RunFigures& run, Logged logged) {
  // A framework's own pool may refuse what the limit would have refused.
  if (refused_first(failure.account) == nullptr && logged.is(Cause::kExhausted) &&
      logged.requested > smallest_limit(failure.account)) {
    logged.cause = {fmt::format("too-large-for-device: one request of {} cannot fit in the limit of {}",
                                format_bytes(logged.requested),
                                format_bytes(smallest_limit(failure.account)))};
  }
  // The log has figures alone, and the snapshot the operation as well.
  const Facts verdict = report.part("verdict");
  if (const std::string moment = verdict.text("sentence"); logged.has_figures_alone && !moment.empty() &&
                                                           verdict.has("failure") &&
                                                           verdict.parts("findings").empty())
    logged.cause = {moment};
  add_request(facts, report, run, logged);
  return logged;
}

// The cause that explains most, of all that speaks for one; else what the log says.
Candidate find_cause(const Failure& failure, const Facts& facts) {
  const guard::Slot* slot = refused_first(failure.account);
  const std::string& log = failure.ended.errors;
  Logged logged = explain_log(slot == nullptr ? log : without_processes(log));
  // A program may recover from running out of memory, and fail later for a reason of its own.
  const bool ran_out = log.find("out of memory") != std::string::npos ||
                       log.find("Out of memory") != std::string::npos ||
                       log.find("Traceback") == std::string::npos || logged.is(Cause::kAmbiguous);
  if (logged.is(Cause::kHostMemory)) add_kept(facts, logged);
  if (!ran_out || tried_again(log)) return logged;
  const Facts& report = failure.report;
  const RunFigures run = figures_of(failure.account, report, logged);
  const std::vector<Candidate> ranked = rank_candidates(facts, report, run);
  if (ranked.empty() || logged.weight() > ranked.front().weight())
    return explain_request(failure, facts, report, run, std::move(logged));
  Candidate best = ranked.front();
  // A second cause that explains nearly as much.
  if (ranked.size() > 1 && ranked[1].weight() >= ranked[0].weight() / 2)
    best.cause.push_back("or " + ranked[1].cause.front());
  // No smaller batch or other allocator mends what is kept, and no step is told twice.
  for (const std::string& step : logged.next) {
    const bool is_again = step.find("expandable_segments") != std::string::npos && !best.next.empty() &&
                          best.next.front().find("expandable_segments") != std::string::npos;
    if (!best.is_kept() && !is_again) best.next.push_back(step);
  }
  return best;
}

// Calls see(name, figure) for the figures of an account that a verdict is told from.
template <typename Card, typename See>
void for_figures_of_card(Card& card, const See& see) {
  see("limit", card.limit_bytes);
  see("peak", card.peak_bytes);
  see("context_refused", card.context_refused);
}
template <typename Slot, typename See>
void for_figures_of_slot(Slot& slot, const See& see) {
  see("owner", slot.owner);
  see("refusals", slot.refusals);
  see("refused", slot.refused_bytes);
  see("ns", slot.refused_ns);
  see("others", slot.refused_others);
  see("card", slot.refused_card);
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
  const Facts& facts = failure.facts;
  const std::string context = context_text(failure.account);
  Candidate found{.cause = {context}, .next = {}};
  std::vector<std::string>&lines = found.cause, &next = found.next;
  if (context.starts_with("other-process")) {
    next = {"next: fewer processes on the GPU: workers that load data need none  # num_workers=0"};
    add_start(facts, found);
  }
  if (context.empty()) {
    found = find_cause(failure, facts);
    if (lines.size() > 4) lines.resize(4);
    const bool is_killed = (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
                           (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
    if (is_killed && failure.killed_for_memory) {
      lines.insert(lines.begin(), "host-memory: the system's out-of-memory killer ended the program");
    } else if (WIFSIGNALED(status) && lines.empty()) {
      lines.push_back(fmt::format("ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status))));
    }
    std::string line = moment_of(facts);
    if (line.empty()) line = own_line(failure.ended.errors);
    if (!line.empty()) lines.push_back((found.line.empty() ? "at " : "memory ran out at ") + line);
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

void write_failure(const std::string& path, const Failure& failure) {
  const guard::Account& account = failure.account;
  List cards, slots;
  Record entry;
  const auto add = [&entry](const char* name, const auto& figure) { entry.push_back({name, figure.load()}); };
  for (size_t i = 0; i < std::size(account.cards); ++i) {
    if (account.cards[i].known != 2) continue;
    entry = {{"card", i}};
    for_figures_of_card(account.cards[i], add);
    cards.emplace_back(entry);
  }
  for (const guard::Slot& slot : account.slots) {
    if (slot.refusals == 0) continue;
    entry = {};
    for_figures_of_slot(slot, add);
    slots.emplace_back(entry);
  }
  const std::string text = to_json(Record{{"headroom_failure", 1},
                                          {"status", failure.ended.status},
                                          {"errors", failure.ended.errors},
                                          {"killed_for_memory", failure.killed_for_memory},
                                          {"command", failure.command},
                                          {"first_refusal_of", account.first_refusal_of.load()},
                                          {"cards", cards},
                                          {"slots", slots},
                                          {"report", failure.report.value()},
                                          {"facts", failure.facts.value()}},
                                   1) +
                           "\n";
  const std::string_view parts[] = {text};
  write_file(path, parts);
}

std::string verdict_of_file(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  const Facts file = Facts::parse(read_file(path, kMostBytes));
  const Facts log = file.part("errors");
  const auto* errors = std::get_if<std::string>(&log.value().data());
  if (file.number("headroom_failure") != 1 || errors == nullptr)
    throw InvalidArgument(fmt::format("{}: no file of headroom run --failure", path));
  const auto account = std::make_unique<guard::Account>();
  account->first_refusal_of = static_cast<uint64_t>(file.number("first_refusal_of"));
  Facts entry;
  const auto take = [&entry](const char* name, auto& figure) {
    figure = static_cast<decltype(figure.load())>(entry.number(name));
  };
  for (const Facts& each : file.parts("cards")) {
    entry = each;
    guard::Card& card = account->cards[std::min<int64_t>(entry.number("card"), guard::kMaxCards - 1)];
    card.known = 2;
    for_figures_of_card(card, take);
  }
  size_t used = 0;
  for (const Facts& each : file.parts("slots")) {
    entry = each;
    guard::Slot& slot = account->slots[std::min<size_t>(used++, guard::kMaxSlots - 1)];
    for_figures_of_slot(slot, take);
    slot.refused_card = std::min<int32_t>(slot.refused_card, guard::kMaxCards - 1);
  }
  const Ended ended{.status = static_cast<int>(file.number("status")), .errors = *errors};
  return verdict_of_command({.account = *account,
                             .ended = ended,
                             .killed_for_memory = file.is_set("killed_for_memory"),
                             .traces = {},
                             .report = file.part("report"),
                             .facts = file.part("facts"),
                             .kept_snapshot = {},
                             .command = file.text("command")});
}

}  // namespace headroom
