#include "tools/who/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/bytes.h"

namespace headroom::who {
namespace {

using Json = nlohmann::ordered_json;

// "2002.0 MiB: 1344.0 free, 329.0 ours, 329.0 others'".
std::string verdict(const Account& account) {
  std::string text = fmt::format("{} ({}): {} of {} free", account.device, account.name,
                                 format_bytes(account.free_bytes), format_bytes(account.total_bytes));
  if (account.ours.total_bytes() > 0)
    text += fmt::format("; we hold {}", format_bytes(account.ours.total_bytes()));
  if (account.others.empty()) {
    text += account.processes_listed ? "; no other process holds any" : "; the driver lists no processes";
    return text;
  }
  const Holder& most = account.others.front();
  if (!most.pid) return text + fmt::format("; others hold {}", format_bytes(account.others_bytes()));
  return text + fmt::format("; {} other process{} hold{} {}, the most pid {}{}", account.others.size(),
                            account.others.size() == 1 ? "" : "es", account.others.size() == 1 ? "s" : "",
                            format_bytes(account.others_bytes()), *most.pid,
                            most.user.empty() ? "" : fmt::format(" of {}", most.user));
}

std::string row(std::string_view name, int64_t bytes, int64_t total_bytes, std::string_view who = {}) {
  const double share =
      total_bytes > 0 ? 100.0 * static_cast<double>(bytes) / static_cast<double>(total_bytes) : 0;
  const std::string text = fmt::format("{:<16} {:>10} {:>6.1f} %  {}", name, format_mib(bytes), share, who);
  return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
}

std::string shortened(const std::string& text) {
  constexpr size_t kWidth = 80;
  if (text.size() <= kWidth) return text;
  size_t end = kWidth;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not inside a character
  return text.substr(0, end) + "...";
}

std::string describe(const Holder& holder) {
  if (!holder.pid) return "other processes";
  if (holder.user.empty()) return fmt::format("pid {}, not of this container or ended", *holder.pid);
  return fmt::format("pid {} {}: {}", *holder.pid, holder.user, shortened(holder.command));
}

std::string table(const Account& account) {
  const int64_t total = account.total_bytes;
  std::string text = fmt::format("\n{:<16} {:>10} {:>8}\n", account.device, "MiB", "share");
  text += row("total", total, total) + row("free", account.free_bytes, total);
  const Ours& ours = account.ours;
  text += row("ours", ours.total_bytes(), total);
  if (ours.total_bytes() != 0) {
    text += row("  context", ours.context_bytes, total) + row("  libraries", ours.libraries_bytes, total) +
            row("  live", ours.live_bytes, total) + row("  cached", ours.cached_bytes, total);
  }
  text += row("others", account.others_bytes(), total);
  for (const Holder& holder : account.others) {
    text += holder.bytes ? row("", *holder.bytes, total, describe(holder))
                         : fmt::format("{:<16} {:>10} {:>8}  {}\n", "", "?", "", describe(holder));
  }
  return text + row("unaccounted", account.unaccounted_bytes(), total);
}

std::string next_command(const View& view) {
  for (const Account& account : view.accounts) {
    if (account.simulated) {
      return fmt::format("headroom predict --device {}", account.device);
    }
    for (const Holder& holder : account.others) {
      if (holder.pid && !holder.user.empty()) return fmt::format("ps -fp {}", *holder.pid);
    }
  }
  return "headroom fit --device cuda";
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json to_json(const Account& account) {
  Json json;
  json["device"] = account.device;
  json["name"] = account.name;
  json["uuid"] = text_or_null(account.uuid);
  json["simulated"] = account.simulated;
  json["total_bytes"] = account.total_bytes;
  json["free_bytes"] = account.free_bytes;
  json["ours"] = {{"context_bytes", account.ours.context_bytes},
                  {"libraries_bytes", account.ours.libraries_bytes},
                  {"live_bytes", account.ours.live_bytes},
                  {"cached_bytes", account.ours.cached_bytes}};
  json["others"] = Json::array();
  for (const Holder& holder : account.others) {
    Json one;
    one["pid"] = holder.pid ? Json(*holder.pid) : Json();
    one["user"] = text_or_null(holder.user);
    one["command"] = text_or_null(holder.command);
    one["bytes"] = holder.bytes ? Json(*holder.bytes) : Json();
    json["others"].push_back(one);
  }
  json["processes_listed"] = account.processes_listed;
  json["unaccounted_bytes"] = account.unaccounted_bytes();
  return json;
}

}  // namespace

std::string to_text(const View& view) {
  std::string text;
  if (!view.problem.empty()) text += fmt::format("{}; a simulated GPU in its place\n", view.problem);
  if (!view.failure.empty()) text += view.failure + "\n";
  for (const Account& account : view.accounts) text += verdict(account) + "\n";
  for (const Account& account : view.accounts) {
    text += table(account);
    if (account.unaccounted_bytes() == 0 || account.simulated) continue;
    text +=
        account.unaccounted_bytes() > 0
            ? "unaccounted: the driver's own, or processes that it does not list, as of other containers\n"
            : "unaccounted: less is in use than the processes claim; one of them has just ended\n";
  }
  return text + fmt::format("\nnext: {}", next_command(view));
}

std::string to_json(const View& view, int indent) {
  Json json;
  json["devices"] = Json::array();
  for (const Account& account : view.accounts) json["devices"].push_back(to_json(account));
  json["problem"] = text_or_null(view.problem);
  json["failure"] = text_or_null(view.failure);
  // Command lines of strangers need not be UTF-8.
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace headroom::who
