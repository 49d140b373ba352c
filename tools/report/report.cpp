// headroom report: shows a recording as a timeline in the terminal, as an HTML page, and in Perfetto.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "allocators/trace/read_trace.h"
#include "runtime/app/option_set.h"
#include "runtime/base/bytes.h"
#include "runtime/base/errors.h"
#include "runtime/base/files.h"
#include "runtime/base/text.h"
#include "tools/report/history.h"
#include "tools/report/load_trace.h"
#include "tools/report/views.h"
#include "tools/subcommands.h"

namespace headroom::report {
namespace {

using Json = nlohmann::ordered_json;

// Blocks at the peak with the same names and category.
struct ReportRow {
  std::string op, tensor, source;
  MemoryCategory category = MemoryCategory::kOther;
  int64_t bytes = 0, blocks = 0;
};

std::vector<ReportRow> rows_at_peak(const History& history) {
  std::map<std::tuple<int32_t, int32_t, int32_t, MemoryCategory>, ReportRow> groups;
  for (const size_t block : history.live_blocks(history.peak_event())) {
    const TraceEvent& allocation = history.allocation(block);
    const TraceBlock& facts = history.trace.block_facts[block];
    ReportRow& row = groups[{allocation.op, allocation.tag, facts.source, facts.category}];
    if (row.blocks++ == 0) {
      row = {history.op(block), history.tensor(block), history.source(block), facts.category, 0, 1};
    }
    row.bytes += allocation.bytes;
  }
  std::vector<ReportRow> rows;
  for (auto& [names, row] : groups) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const ReportRow& a, const ReportRow& b) { return a.bytes > b.bytes; });
  return rows;
}

std::string_view name_of(MemoryCategory category) {
  return kMemoryCategoryNames[static_cast<size_t>(category)];
}

std::string summary(const History& history) {
  const Trace& trace = history.trace;
  std::string text = fmt::format("peak {} live", format_bytes(history.peak_bytes));
  if (history.allocated_at_peak > history.peak_bytes) {
    text += fmt::format(", {} after rounding", format_bytes(history.allocated_at_peak));
  }
  if (history.peak_reserved_bytes)
    text += fmt::format(", {} reserved", format_bytes(*history.peak_reserved_bytes));
  if (history.library_bytes > 0) {
    text += fmt::format(", {} context and libraries", format_bytes(history.library_bytes));
  }
  text += fmt::format("; {} out of memory, {} retries", history.out_of_memory, history.retries);
  text += fmt::format("\n{}: {}, {} events, {} blocks, {} stream{}", printable(trace.name), trace.format,
                      trace.events.size(), trace.blocks, trace.streams.size(),
                      trace.streams.size() == 1 ? "" : "s");
  for (const auto& [name, value] : trace.settings) {
    text += fmt::format(", {} {}", printable(name), printable(value));
  }
  if (!trace.parts.empty())
    text += "\nnote: the tensors of a packed plan are shown for one step, at the allocation of its arena";
  if (trace.cut_off)
    text += "\nnote: the last line is incomplete and was ignored; the program may have been killed";
  return text;
}

void print(const History& history) {
  constexpr size_t kShown = 15;
  fmt::print("{}\n\n{}\n", summary(history), timeline(history));
  const std::vector<ReportRow> rows = rows_at_peak(history);
  fmt::print("live at the peak\n{:>14} {:>6}  {:<16} {:<34} {:<30} {}\n", "bytes", "share", "category",
             "tensor", "op", "source");
  int64_t left = history.peak_bytes;
  for (size_t i = 0; i < rows.size() && i < kShown; ++i) {
    const ReportRow& row = rows[i];
    left -= row.bytes;
    const std::string tensor =
        printable(row.tensor) + (row.blocks > 1 ? fmt::format(" ({} blocks)", row.blocks) : "");
    fmt::print("{:>14} {:>4.1f} %  {:<16} {:<34} {:<30} {}\n", row.bytes,
               100 * static_cast<double>(row.bytes) / static_cast<double>(history.peak_bytes),
               name_of(row.category), tensor.empty() ? "-" : tensor, row.op.empty() ? "-" : printable(row.op),
               printable(row.source));
  }
  if (left > 0) fmt::print("{:>14} in {} more rows\n", left, rows.size() - kShown);
}

Json to_json(const History& history) {
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(); };
  const MemorySample& peak = history.samples[history.peak_sample];
  Json json;
  json["trace"] = history.trace.name;
  json["format"] = history.trace.format;
  json["settings"] = Json::object();
  for (const auto& [name, value] : history.trace.settings) json["settings"][name] = value;
  json["events"] = history.trace.events.size();
  json["blocks"] = history.trace.blocks;
  json["cut_off"] = history.trace.cut_off;
  json["peak_bytes"] = history.peak_bytes;
  json["peak_event"] = history.peak_event();
  json["allocated_at_peak_bytes"] = history.allocated_at_peak;
  json["peak_reserved_bytes"] = or_null(history.peak_reserved_bytes);
  json["library_bytes"] = history.library_bytes;
  json["live_at_end_bytes"] = history.live_at_end_bytes;
  json["fragmentation"] = or_null(history.fragmentation);
  json["out_of_memory"] = history.out_of_memory;
  json["retries"] = history.retries;
  json["driver_calls"] = history.knows_driver ? Json(history.driver_calls) : Json();
  json["by_category"] = Json::object();
  for (size_t i = 0; i < kCategories; ++i) {
    std::string name(kMemoryCategoryNames[i]);
    std::replace(name.begin(), name.end(), ' ', '_');
    json["by_category"][name] = peak.bytes[i];
  }
  json["at_peak"] = Json::array();
  for (const ReportRow& row : rows_at_peak(history)) {
    json["at_peak"].push_back({{"bytes", row.bytes},
                               {"blocks", row.blocks},
                               {"category", name_of(row.category)},
                               {"tensor", row.tensor},
                               {"op", row.op},
                               {"source", row.source}});
  }
  return json;
}

}  // namespace

int run_report(int argc, char** argv) {
  std::vector<std::string> paths;
  std::string html, chrome;
  bool as_json = false;
  OptionSet set("headroom report", "Shows memory over time and the tensors that are live at the peak.");
  set.add_arguments(
      "TRACE", "A recording, an op,id,bytes CSV, an RMM log or a PyTorch memory snapshot; may be gzipped",
      &paths);
  set.add_text("html", "Write a self-contained HTML page to this file", &html);
  set.add_text("chrome", "Write JSON for ui.perfetto.dev or chrome://tracing to this file", &chrome);
  set.add_switch("json", "Print JSON, sizes in bytes", &as_json);
  set.set_examples(
      "  headroom report run.trace                   a timeline and a table in the terminal\n"
      "  headroom report run.trace --html run.html   an interactive page\n"
      "  headroom report snapshot.pickle --chrome run.json\n"
      "  headroom report run.trace --json | jq .by_category\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  if (paths.size() != 1) throw InvalidArgument(fmt::format("report shows one trace; {} given", paths.size()));
  for (const std::string* output : {&html, &chrome}) {
    if (output->empty()) continue;
    if (is_same_file(*output, paths[0]))
      throw InvalidArgument(fmt::format("{}: would overwrite the trace", *output));
    require_writable(*output);
  }
  const Trace trace = load_trace(paths[0]);
  const History history(trace);
  if (!html.empty()) {
    const std::string data = page_data(history);
    const std::string_view parts[] = {kPageBeforeData, data, kPageAfterData};
    write_file(html, parts);
  }
  if (!chrome.empty()) {
    const std::string text = chrome_trace(history);
    const std::string_view parts[] = {text};
    write_file(chrome, parts);
  }
  if (as_json) {
    fmt::print("{}\n", to_json(history).dump(2, ' ', false, Json::error_handler_t::replace));
    return kExitDone;
  }
  print(history);
  if (!chrome.empty()) fmt::print("\nopen in ui.perfetto.dev: {}", printable(chrome));
  fmt::print("\nnext: {}\n", html.empty()
                                 ? fmt::format("headroom report {} --html report.html", shell_word(paths[0]))
                                 : "xdg-open " + shell_word(html));
  return kExitDone;
}

}  // namespace headroom::report
