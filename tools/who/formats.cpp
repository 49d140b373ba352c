#include "tools/who/formats.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/table.h"

namespace headroom::who {
namespace {

using Json = nlohmann::ordered_json;

// "cuda:0 (NVIDIA H200): 45.10 GiB of 139.80 GiB free; we hold ...; 2 other processes hold ...".
std::string verdict(const Account& account, const Terminal& terminal) {
  std::string text =
      fmt::format("{} ({}): {} of {} free", account.device, account.name,
                  terminal.painted(format_bytes(account.free_bytes), colour_of_share(used_share(account))),
                  format_bytes(account.total_bytes));
  if (account.ours.total_bytes() > 0)
    text += fmt::format("; we hold {}", format_bytes(account.ours.total_bytes()));
  if (account.others.empty()) {
    text += account.processes_listed ? "; no other process uses any" : "; the driver lists no processes";
    return text;
  }
  const Holder& most = account.others.front();
  if (!most.pid) return text + fmt::format("; others hold {}", format_bytes(account.others_bytes()));
  return text + fmt::format("; {} other process{} hold{} {}, the most pid {}{}", account.others.size(),
                            account.others.size() == 1 ? "" : "es", account.others.size() == 1 ? "s" : "",
                            format_bytes(account.others_bytes()), *most.pid,
                            most.user.empty() ? "" : fmt::format(" of {}", most.user));
}

std::string table(const Account& account, const Terminal& terminal) {
  const int64_t total = account.total_bytes;
  Table table({{account.device}, {"MiB", true}, {"share", true}, {.title = "", .drop = 1, .wraps = true}});
  const auto add = [&](const char* name, int64_t bytes, const std::string& who = {}) {
    const double share = total > 0 ? 100.0 * static_cast<double>(bytes) / static_cast<double>(total) : 0;
    table.add({name, format_mib(bytes), fmt::format("{:.1f} %", share), who});
  };
  add("total", total);
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
  for (const Holder& holder : account.others) {
    if (holder.bytes) {
      add("", *holder.bytes, describe(holder));
    } else {
      table.add({"", "?", "", describe(holder)});
    }
  }
  add("unaccounted", account.unaccounted_bytes());
  return "\n" + table.text(terminal);
}

std::string next_command(const View& view) {
  for (const Account& account : view.accounts) {
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

double used_share(const Account& account) {
  if (account.total_bytes <= 0) return 0;
  return 1 - static_cast<double>(account.free_bytes) / static_cast<double>(account.total_bytes);
}

Colour colour_of_share(double used) {
  constexpr double kHigh = 0.6, kFull = 0.9;
  return used >= kFull ? Colour::kRed : used >= kHigh ? Colour::kYellow : Colour::kGreen;
}

std::string describe(const Holder& holder) {
  if (!holder.pid) return "other processes";
  if (holder.user.empty()) return fmt::format("pid {}, in another container or ended", *holder.pid);
  constexpr size_t kMostCharacters = 80;
  return fmt::format("pid {} {}: {}", *holder.pid, holder.user,
                     Terminal(0, false).cut(holder.command, 0, kMostCharacters));
}

std::string to_text(const View& view, const Terminal& terminal, const std::string& next) {
  std::string text;
  if (!view.problem.empty()) {
    const std::string_view lead = view.problem.starts_with("no GPU") ? "" : "no GPU: ";
    text += terminal.painted(terminal.wrapped(std::string(lead) + view.problem), Colour::kRed) + "\n";
  }
  if (!view.failure.empty()) text += terminal.painted(terminal.wrapped(view.failure), Colour::kRed) + "\n";
  for (const Account& account : view.accounts) {
    text += terminal.wrapped(verdict(account, terminal)) + "\n";
  }
  for (const Account& account : view.accounts) {
    text += table(account, terminal);
    if (account.unaccounted_bytes() == 0 || account.simulated) continue;
    text +=
        terminal.wrapped(
            account.unaccounted_bytes() > 0
                ? "unaccounted: memory of the driver, or of processes that it does not list, such as those "
                  "of other containers"
                : "unaccounted: less memory is in use than the processes claim; one of them has just ended") +
        "\n";
  }
  return text + fmt::format("\nnext: {}", next.empty() ? next_command(view) : next);
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
