// An OutOfMemoryReport as people and programs read it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "answers/out_of_memory.h"
#include "base/bytes.h"
#include "base/text.h"

namespace headroom {
namespace {

constexpr size_t kLiveInJson = 10'000;  // the largest

// "conv1 of conv1/conv2d at net.cpp:31, 18.00 MiB".
std::string block_text(const LiveBlock& block) {
  MemoryFacts facts;
  facts.requested = block.bytes;
  facts.tensor = block.tensor;
  facts.op = block.op;
  facts.source = block.source;
  return request_text(facts);
}

std::array<int64_t, kMemoryCategoryNames.size()> by_category(const std::vector<LiveBlock>& live) {
  std::array<int64_t, kMemoryCategoryNames.size()> bytes{};
  for (const LiveBlock& block : live) bytes[static_cast<size_t>(block.category)] += block.bytes;
  return bytes;
}

std::string live_blocks_text(const std::vector<LiveBlock>& live) {
  std::string text = "live: ";
  const auto bytes = by_category(live);
  const char* separator = "";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == 0) continue;
    text += fmt::format("{}{} {}", separator, kMemoryCategoryNames[i], format_bytes(bytes[i]));
    separator = ", ";
  }
  constexpr size_t kShown = 3;
  text += "\nlargest: ";
  for (size_t i = 0; i < std::min(kShown, live.size()); ++i) {
    text += fmt::format("{}{}", i > 0 ? ", " : "", block_text(live[i]));
  }
  return text + "\n";
}

// The changes that fit, or those that do not.
std::string list(const OutOfMemoryReport& report, bool fits) {
  std::string text;
  for (const TriedChange& change : report.changes) {
    if (change.fits == fits) text += fmt::format("{}{}", text.empty() ? "" : "; ", change.what);
  }
  return text;
}

nlohmann::ordered_json json_of(const LiveBlock& block) {
  return {{"op", block.op},
          {"tensor", block.tensor},
          {"source", block.source},
          {"category", kMemoryCategoryNames[static_cast<size_t>(block.category)]},
          {"bytes", block.bytes}};
}

nlohmann::ordered_json json_of(const std::optional<int64_t>& bytes) {
  return bytes ? nlohmann::ordered_json(*bytes) : nlohmann::ordered_json();
}

nlohmann::ordered_json json_of(const MemoryFacts& facts) {
  return {{"requested_bytes", facts.requested},
          {"allocated_bytes", facts.allocated},
          {"asked_bytes", facts.asked},
          {"reserved_bytes", facts.reserved},
          {"largest_free_block_bytes", facts.largest_free_block},
          {"limit_bytes", json_of(facts.limit)},
          {"limit_is_reserve", facts.limit_is_reserve},
          {"limit_is_on_process", facts.limit_is_on_process},
          {"limit_room_bytes", json_of(facts.limit_room)},
          {"device_total_bytes", facts.device_total},
          {"device_free_bytes", facts.device_free},
          {"others_bytes", facts.others},
          {"strategy", facts.strategy},
          {"device", facts.device},
          {"op", facts.op},
          {"tensor", facts.tensor},
          {"source", facts.source}};
}

}  // namespace

std::string to_text(const OutOfMemoryReport& report) {
  std::string text =
      fmt::format("{}: {}\n{}\n", name_of(report.judgment.cause), report.judgment.reason, report.message);
  if (!report.reproduced) {
    return text + "no change is tested: the same requests fit on a simulated twin of the device\n";
  }
  if (!report.live.empty()) text += live_blocks_text(report.live);
  if (report.pin) {
    const PinningBlock& pin = *report.pin;
    text += fmt::format("pinned by: {}{}: without, {} would be in one piece\n", block_text(pin.block),
                        pin.others > 0 ? fmt::format(" and {} more", pin.others) : "",
                        format_bytes(pin.opens_bytes));
  }
  const std::string fitting = list(report, true), failing = list(report, false);
  text += fmt::format("fits with: {}\n", fitting.empty() ? "none of the changes tried" : fitting);
  if (!failing.empty()) text += fmt::format("not with: {}\n", failing);
  return text;
}

std::string to_json(const OutOfMemoryReport& report) {
  nlohmann::ordered_json json;
  json["cause"] = name_of(report.judgment.cause);
  json["reason"] = report.judgment.reason;
  json["message"] = report.message;
  json["facts"] = json_of(report.facts);
  json["reproduced"] = report.reproduced;
  json["live_by_category"] = nlohmann::ordered_json::object();
  const auto bytes = by_category(report.live);
  for (size_t i = 0; i < bytes.size(); ++i) {
    json["live_by_category"][std::string(kMemoryCategoryNames[i])] = bytes[i];
  }
  json["live"] = nlohmann::ordered_json::array();
  const size_t listed = std::min(kLiveInJson, report.live.size());
  for (size_t i = 0; i < listed; ++i) json["live"].push_back(json_of(report.live[i]));
  json["live_blocks"] = report.live.size();
  json["pinned_by"] = nullptr;
  if (report.pin) {
    json["pinned_by"] = json_of(report.pin->block);
    json["pinned_by"]["others"] = report.pin->others;
    json["pinned_by"]["opens_bytes"] = report.pin->opens_bytes;
  }
  json["changes"] = nlohmann::ordered_json::array();
  for (const TriedChange& change : report.changes) {
    const RunSetup& setup = change.setup;
    json["changes"].push_back({{"change", to_string(change.kind)},
                               {"what", change.what},
                               {"fits", change.fits},
                               {"is_least", change.is_least},
                               {"strategy", setup.options.strategy},
                               {"limit_bytes", json_of(setup.options.limit_bytes)},
                               {"libraries_first", setup.options.libraries_first},
                               {"plan", to_string(setup.options.plan)},
                               {"batch", setup.batch},
                               {"device_total_bytes", setup.device.total_bytes}});
  }
  const TriedChange* smallest = report.smallest();
  json["smallest"] = smallest == nullptr ? nlohmann::ordered_json() : nlohmann::ordered_json(smallest->what);
  // Names out of traces may hold any bytes.
  return json_text(json);
}

}  // namespace headroom
