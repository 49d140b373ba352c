#include "tools/who/guarded.h"

#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/bytes.h"
#include "base/table.h"
#include "base/text.h"
#include "guard/account.h"

namespace headroom::who {
namespace {

// The first digits of a container's name, which the paths of its control groups hold.
std::string container_of(int process) {
  std::ifstream file(fmt::format("/proc/{}/cgroup", process));
  for (std::string line; std::getline(file, line);) {
    constexpr size_t kDigits = 64, kShown = 12;
    const size_t end = line.find_last_of("0123456789abcdef");
    if (end == std::string::npos || end + 1 < kDigits) continue;
    const std::string_view name = std::string_view(line).substr(end + 1 - kDigits, kDigits);
    if (name.find_first_not_of("0123456789abcdef") == std::string_view::npos)
      return std::string(name.substr(0, kShown));
  }
  return {};
}

double minutes_since(int64_t start_ns) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec * int64_t{1000000000} + now.tv_nsec - start_ns) / 6e10;
}

void add_rows(Table& table, const guard::Account& account) {
  for (const guard::Slot& slot : account.slots) {
    if (!guard::is_counted(slot.owner)) continue;
    const int process = guard::process_of(slot.owner);
    for (int i = 0; i < guard::kMaxCards; ++i) {
      const guard::Share& share = slot.cards[i];
      const int64_t held = share.held, cached = share.cached, all = held + share.extra;
      if (all == 0) continue;
      const int64_t limit = account.cards[i].limit_bytes;
      const double minutes = minutes_since(account.minute_ns);
      const double growth = minutes > 0 ? static_cast<double>(all - share.before) / minutes : 0;
      table.add({fmt::format("{}", process), format_mib(held - cached), format_mib(cached),
                 format_mib(share.extra), limit == guard::kNoLimit ? "-" : format_mib(limit),
                 format_mib(static_cast<int64_t>(growth)), container_of(process),
                 printable(account.command, 60)});
    }
  }
}

}  // namespace

std::string guarded_text(const Terminal& terminal) {
  Table table({{"guarded pid"},
               {"live", true},
               {"cached", true},
               {"context", true},
               {"limit", true},
               {.title = "per minute", .is_number = true, .drop = 2},
               {.title = "container", .drop = 1},
               {.title = "command", .wraps = true}});
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(guard::kAccountFolder, ignored)) {
    if (!entry.path().filename().string().starts_with(guard::kAccountPrefix)) continue;
    guard::Account* account = guard::open_account(entry.path().c_str());
    if (account == nullptr) continue;
    guard::reap(*account);
    add_rows(table, *account);
    guard::close_account(account);
  }
  return table.empty() ? "" : "\n" + table.text(terminal);
}

}  // namespace headroom::who
