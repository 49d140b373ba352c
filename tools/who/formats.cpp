#include "tools/who/formats.h"

#include <fmt/format.h>

#include <utility>

#include "base/bytes.h"

namespace headroom::who {
namespace {

// "cuda:0 (NVIDIA H200): 45.10 GiB of 139.80 GiB free; we hold ...; 2 other processes hold ...".
void add_verdict(Sheet& sheet, const Account& account) {
  const std::string lead = fmt::format("{} ({}): {} of {} free", account.device, account.name,
                                       format_bytes(account.free_bytes), format_bytes(account.total_bytes));
  std::string text;
  if (account.ours.total_bytes() > 0)
    text += fmt::format("; we hold {}", format_bytes(account.ours.total_bytes()));
  if (account.others.empty()) {
    text += account.processes_listed ? "; no other process uses any" : "; the driver lists no processes";
  } else if (const Holder& most = account.others.front(); !most.pid) {
    text += fmt::format("; others hold {}", format_bytes(account.others_bytes()));
  } else {
    text += fmt::format("; {} other process{} hold{} {}, the most pid {}{}", account.others.size(),
                        account.others.size() == 1 ? "" : "es", account.others.size() == 1 ? "s" : "",
                        format_bytes(account.others_bytes()), *most.pid,
                        most.user.empty() ? "" : fmt::format(" of {}", most.user));
  }
  sheet.verdict(lead, color_of_share(used_share(account)), text);
}

void add_table(Sheet& sheet, const Account& account) {
  SheetTable& table = sheet.table(
      {.columns = {{account.device}, {"MiB", "", kMib}, {"share", "", kPercent}, {"", "", kWrappedText, 1}}});
  const auto add = [&](const char* name, std::optional<int64_t> bytes, const std::string& who = {}) {
    if (!bytes) return table.add({name, {Datum(), "?"}, {Datum(), ""}, who});
    const auto total = static_cast<double>(account.total_bytes);
    table.add({name, *bytes, total > 0 ? 100 * static_cast<double>(*bytes) / total : 0, who});
  };
  add("total", account.total_bytes);
  add("free", account.free_bytes);
  const Ours& ours = account.ours;
  add("ours", ours.total_bytes());
  if (ours.total_bytes() != 0) {
    add("  context", ours.context_bytes);
    add("  libraries", ours.libraries_bytes);
    add("  live", ours.live_bytes);
    add("  cached", ours.cached_bytes);
  }
  add("others", account.others_bytes());
  for (const Holder& holder : account.others) add("", holder.bytes, describe(holder));
  add("unaccounted", account.unaccounted_bytes());
  if (account.unaccounted_bytes() == 0 || account.simulated) return;
  sheet.note(account.unaccounted_bytes() > 0
                 ? "unaccounted: memory of the driver, or of processes that it does not list, such as those "
                   "of other containers"
                 : "unaccounted: less memory is in use than the processes claim; one of them has just ended");
}

std::string next_command(const View& view) {
  for (const Account& account : view.accounts) {
    for (const Holder& holder : account.others) {
      if (holder.pid && !holder.user.empty()) return fmt::format("ps -fp {}", *holder.pid);
    }
  }
  return "headroom fit --device cuda";
}

Datum text_or_null(const std::string& text) {
  return text.empty() ? Datum() : Datum(text);
}

Record to_record(const Account& account) {
  List others;
  for (const Holder& holder : account.others) {
    others.push_back(Record{{"pid", holder.pid},
                            {"user", text_or_null(holder.user)},
                            {"command", text_or_null(holder.command)},
                            {"bytes", holder.bytes}});
  }
  return {{"device", account.device},
          {"name", account.name},
          {"uuid", text_or_null(account.uuid)},
          {"simulated", account.simulated},
          {"total_bytes", account.total_bytes},
          {"free_bytes", account.free_bytes},
          {"ours", Record{{"context_bytes", account.ours.context_bytes},
                          {"libraries_bytes", account.ours.libraries_bytes},
                          {"live_bytes", account.ours.live_bytes},
                          {"cached_bytes", account.ours.cached_bytes}}},
          {"others", std::move(others)},
          {"processes_listed", account.processes_listed},
          {"unaccounted_bytes", account.unaccounted_bytes()}};
}

}  // namespace

double used_share(const Account& account) {
  if (account.total_bytes <= 0) return 0;
  return 1 - static_cast<double>(account.free_bytes) / static_cast<double>(account.total_bytes);
}

Color color_of_share(double used) {
  constexpr double kHigh = 0.6, kFull = 0.9;
  return used >= kFull ? Color::kRed : used >= kHigh ? Color::kYellow : Color::kGreen;
}

std::string describe(const Holder& holder) {
  if (!holder.pid) return "other processes";
  if (holder.user.empty()) return fmt::format("pid {}, in another container or ended", *holder.pid);
  constexpr size_t kMostCharacters = 80;
  return fmt::format("pid {} {}: {}", *holder.pid, holder.user,
                     Terminal(0, false).cut(holder.command, 0, kMostCharacters));
}

Sheet to_sheet(const View& view, const std::string& next) {
  Sheet sheet;
  if (!view.problem.empty()) {
    const std::string_view lead = view.problem.starts_with("no GPU") ? "" : "no GPU: ";
    sheet.verdict(std::string(lead) + view.problem, Color::kRed);
  }
  if (!view.failure.empty()) sheet.verdict(view.failure, Color::kRed);
  List devices;
  for (const Account& account : view.accounts) {
    add_verdict(sheet, account);
    devices.emplace_back(to_record(account));
  }
  sheet.set("devices", devices);
  sheet.set("problem", text_or_null(view.problem));
  sheet.set("failure", text_or_null(view.failure));
  for (const Account& account : view.accounts) add_table(sheet, account);
  sheet.next = {{next.empty() ? next_command(view) : next}};
  return sheet;
}

std::string to_lines(const View& view) {
  std::string text;
  if (!view.failure.empty()) text += view.failure + "\n";
  for (const Account& account : view.accounts) {
    text += fmt::format("{}: {} of {} used, {:.0f} %", account.device,
                        format_bytes(account.total_bytes - account.free_bytes),
                        format_bytes(account.total_bytes), 100 * used_share(account));
    if (!account.others.empty()) {
      const Holder& most = account.others.front();
      text += fmt::format("; most: {}{}", describe(most),
                          most.bytes ? ", " + format_bytes(*most.bytes) : std::string());
    }
    text += "\n";
  }
  return text;
}

}  // namespace headroom::who
