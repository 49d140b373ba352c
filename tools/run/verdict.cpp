#include "tools/run/verdict.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/process/process.h"
#include "base/table.h"
#include "base/text.h"

namespace headroom {
namespace {

constexpr size_t kMostNext = 2;

// The cause and the advice that `headroom explain` finds in the end of the program's stderr; a child of its
// own, as commands know nothing of each other.
struct Explained {
  std::vector<std::string> cause, next;
};
Explained explain_log(const std::string& log) {
  Explained explained;
  std::array<char, 32> path{"/tmp/headroom-log-XXXXXX"};
  const int file = mkstemp(path.data());
  if (file < 0) return explained;
  const ssize_t written = write(file, log.data(), log.size());
  close(file);
  ChildResult child{};
  if (written == static_cast<ssize_t>(log.size())) {
    child = run_child(own_path(), {"explain", "--color", "never", path.data()});
  }
  unlink(path.data());
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
Explained explain_snapshot(const std::string& path) {
  if (path.empty()) return {};
  const ChildResult child = run_child(own_path(), {"report", "--json", path});
  const nlohmann::json report = nlohmann::json::parse(child.out, nullptr, false);
  if (!report.is_object() || !report.contains("verdict")) return {};
  const nlohmann::json& verdict = report["verdict"];
  if (!verdict.is_object() || verdict.value("findings", nlohmann::json()).empty()) return {};
  return {{verdict.value("sentence", "")}, {"next: " + verdict["findings"][0].value("advice", "")}};
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
  for (const guard::Card& card : account.cards) {
    if (card.known != 2 || card.context_refused == 0) continue;
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

// "train.py:31 in main": the innermost frame outside libraries of the last traceback of Python.
std::string own_line(const std::string& log) {
  constexpr std::string_view kFile = "  File \"", kLine = "\", line ", kIn = ", in ";
  std::istringstream lines(log);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Traceback (most recent call last)") != std::string::npos) found.clear();
    const size_t begin = line.find(kFile), number = line.find(kLine), in = line.find(kIn);
    if (begin == std::string::npos || number == std::string::npos || in == std::string::npos) continue;
    const std::string path = line.substr(begin + kFile.size(), number - begin - kFile.size());
    const bool is_library = path.starts_with("<") || path.find("-packages/") != std::string::npos ||
                            path.find("/lib/python3") != std::string::npos;
    if (is_library) continue;
    const size_t digits = number + kLine.size();
    found = fmt::format("{}:{} in {}", path, line.substr(digits, in - digits),
                        trimmed(line.substr(in + kIn.size())));
  }
  return printable(found, 200);
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
  if (const std::string context = context_text(failure.account); !context.empty()) {
    lines.push_back(context);
  } else {
    Explained explained = explain_log(failure.ended.errors);
    Explained found = explain_snapshot(failure.snapshot);
    lines = found.cause.empty() ? explained.cause : found.cause;
    next = std::move(found.next);
    next.insert(next.end(), explained.next.begin(), explained.next.end());
    if (lines.size() > 4) lines.resize(4);
    const bool is_killed = (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
                           (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
    if (is_killed && failure.killed_for_memory) {
      lines.insert(lines.begin(), "host-memory: the system's out-of-memory killer ended the program");
    } else if (WIFSIGNALED(status) && lines.empty()) {
      lines.push_back(fmt::format("ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status))));
    }
    if (const std::string line = own_line(failure.ended.errors); !line.empty()) lines.push_back("at " + line);
    if (const std::string refusal = refusal_text(failure.account); !refusal.empty()) lines.push_back(refusal);
  }
  if (!failure.snapshot.empty()) {
    next.resize(std::min(next.size(), kMostNext - 1));
    next.push_back("next: headroom report " + shell_word(failure.snapshot));
  } else if (!failure.traces.empty()) {
    next.insert(next.begin(), "next: headroom report " + shell_word(failure.traces.front()));
  } else if (refused_first(failure.account) != nullptr) {
    next.push_back("next: headroom run --record run.trace -- " + failure.command);
  }
  if (next.size() > kMostNext) next.resize(kMostNext);
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  for (const std::string& line : next) text += line + "\n";
  return text;
}

}  // namespace headroom
