#include "tools/run/failure_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/files.h"

namespace headroom {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr char kNone[] = "no file of headroom run --failure";

nlohmann::json parsed(const std::string& text) {
  nlohmann::json values = nlohmann::json::parse(text, nullptr, false);
  return values.is_discarded() ? nlohmann::json::object() : values;
}

}  // namespace

void write_failure(const std::string& path, const Failure& failure) {
  const guard::Account& account = failure.account;
  nlohmann::json values = {{"headroom_failure", 1},
                           {"status", failure.ended.status},
                           {"errors", failure.ended.errors},
                           {"killed_for_memory", failure.killed_for_memory},
                           {"command", failure.command},
                           {"first_refusal_of", account.first_refusal_of.load()},
                           {"cards", nlohmann::json::array()},
                           {"slots", nlohmann::json::array()},
                           {"report", parsed(failure.report)},
                           {"facts", parsed(failure.facts)}};
  for (size_t i = 0; i < std::size(account.cards); ++i) {
    const guard::Card& card = account.cards[i];
    if (card.known != 2) continue;
    values["cards"].push_back({{"card", i},
                               {"limit", card.limit_bytes.load()},
                               {"peak", card.peak_bytes.load()},
                               {"context_refused", card.context_refused.load()}});
  }
  for (const guard::Slot& slot : account.slots) {
    if (slot.refusals == 0) continue;
    values["slots"].push_back({{"owner", slot.owner.load()},
                               {"refusals", slot.refusals.load()},
                               {"refused", slot.refused_bytes.load()},
                               {"ns", slot.refused_ns.load()},
                               {"others", slot.refused_others.load()},
                               {"card", slot.refused_card.load()}});
  }
  const std::string text = values.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const std::string_view parts[] = {text};
  write_file(path, parts);
}

std::string verdict_of_file(const std::string& path) {
  try {
    const nlohmann::json values = nlohmann::json::parse(read_file(path, kMostBytes));
    if (values.value("headroom_failure", 0) != 1) throw InvalidArgument(kNone);
    const auto account = std::make_unique<guard::Account>();
    account->first_refusal_of = values.at("first_refusal_of").get<uint64_t>();
    for (const nlohmann::json& facts : values.at("cards")) {
      guard::Card& card =
          account->cards[std::min<size_t>(facts.at("card").get<size_t>(), guard::kMaxCards - 1)];
      card.known = 2;
      card.limit_bytes = facts.at("limit").get<int64_t>();
      card.peak_bytes = facts.at("peak").get<int64_t>();
      card.context_refused = facts.at("context_refused").get<int64_t>();
    }
    size_t used = 0;
    for (const nlohmann::json& facts : values.at("slots")) {
      guard::Slot& slot = account->slots[std::min<size_t>(used++, guard::kMaxSlots - 1)];
      slot.owner = facts.at("owner").get<uint64_t>();
      slot.refusals = facts.at("refusals").get<int64_t>();
      slot.refused_bytes = facts.at("refused").get<int64_t>();
      slot.refused_ns = facts.at("ns").get<int64_t>();
      slot.refused_others = facts.at("others").get<int64_t>();
      slot.refused_card = std::clamp<int32_t>(facts.at("card").get<int32_t>(), 0, guard::kMaxCards - 1);
    }
    const Ended ended{.status = values.at("status"), .errors = values.at("errors")};
    return verdict_of_command({.account = *account,
                               .ended = ended,
                               .killed_for_memory = values.at("killed_for_memory"),
                               .traces = {},
                               .report = values.at("report").dump(),
                               .facts = values.at("facts").dump(),
                               .kept_snapshot = {},
                               .command = values.at("command")});
  } catch (const nlohmann::json::exception&) {
    throw InvalidArgument(fmt::format("{}: {}", path, kNone));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace headroom
