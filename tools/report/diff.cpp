// Compares two recordings op by op: headroom report --against, and headroom diff.

#include "tools/report/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <map>
#include <tuple>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/progress.h"
#include "base/text.h"
#include "runtime/app/option_set.h"
#include "sheet/writers.h"
#include "tools/report/load_trace.h"
#include "tools/report/questions.h"
#include "tools/subcommands.h"
#include "trace/read_trace.h"

namespace headroom::report {
namespace {

void add(const History& history, OpMemory OpDifference::*side, std::map<std::string, OpDifference>& ops) {
  // By index of the name first: a million blocks share few names.
  std::vector<OpMemory> by_name(history.trace.names.size());
  for (size_t block = 0; block < history.lifetimes.size(); ++block) {
    const TraceEvent& allocation = history.allocation(block);
    if (allocation.bytes == 0) continue;  // an unfolded arena: its parts count
    OpMemory& op = by_name[static_cast<size_t>(allocation.op)];
    ++op.blocks;
    // A trace may claim 2^60 bytes for each of its blocks.
    if (__builtin_add_overflow(op.allocated_bytes, allocation.bytes, &op.allocated_bytes)) {
      op.allocated_bytes = INT64_MAX;
    }
    if (history.is_live(block, history.peak_event())) op.peak_bytes += allocation.bytes;
  }
  for (size_t name = 0; name < by_name.size(); ++name) {
    if (by_name[name].blocks == 0) continue;
    OpDifference& op = ops[history.trace.names[name]];
    op.op = history.trace.names[name];
    op.*side = by_name[name];
  }
}

std::string summary(const History& before, const History& after) {
  const int64_t change = after.peak_bytes - before.peak_bytes;
  const std::string how = change == 0 ? "stayed"
                                      : fmt::format("{} by {}", change > 0 ? "grew" : "fell",
                                                    format_bytes(change > 0 ? change : -change));
  std::string text = fmt::format("the peak {}: {} -> {}", how, format_bytes(before.peak_bytes),
                                 format_bytes(after.peak_bytes));
  if (before.peak_reserved_bytes && after.peak_reserved_bytes) {
    text += fmt::format("; reserved {} -> {}", format_bytes(*before.peak_reserved_bytes),
                        format_bytes(*after.peak_reserved_bytes));
  }
  return text;
}

void add_ops(Sheet& sheet, const std::vector<OpDifference>& ops) {
  constexpr size_t kShown = 30;
  const auto record = [](const OpMemory& op) {
    return Record{
        {"peak_bytes", op.peak_bytes}, {"allocated_bytes", op.allocated_bytes}, {"blocks", op.blocks}};
  };
  SheetTable& table = sheet.table({.key = "ops",
                                   .caption = "at the peak",
                                   .columns = {{"op", "op", kWrappedText},
                                               {"before", "before", kSize, 1},
                                               {"after", "after", kSize, 2},
                                               {"change", "peak_change_bytes", kSize},
                                               {"blocks", "", kVersion, 3},
                                               {""},
                                               {{}, "new"},
                                               {{}, "gone"}},
                                   .shown_rows = kShown});
  for (const OpDifference& op : ops) {
    const int64_t change = op.peak_change();
    table.add({{op.op, op.op.empty() ? "(no op named)" : op.op},
               {record(op.before), format_bytes(op.before.peak_bytes)},
               {record(op.after), format_bytes(op.after.peak_bytes)},
               {change, (change > 0 ? "+" : "") + format_bytes(change),
                change > 0   ? Color::kRed
                : change < 0 ? Color::kGreen
                             : Color::kDim},
               fmt::format("{} -> {}", op.before.blocks, op.after.blocks),
               op.is_new()    ? "new"
               : op.is_gone() ? "gone"
                              : "",
               op.is_new(),
               op.is_gone()});
  }
  if (ops.size() > kShown) sheet.note(fmt::format("{} more; --json lists all", ops.size() - kShown));
}

Sheet to_sheet(const History& before, const History& after, const std::vector<OpDifference>& ops) {
  const auto side = [](const History& history) {
    return Record{{"trace", history.trace.name},
                  {"peak_bytes", history.peak_bytes},
                  {"peak_reserved_bytes", history.peak_reserved_bytes}};
  };
  Sheet sheet;
  sheet.verdict(summary(before, after));
  sheet.set("before", side(before));
  sheet.set("after", side(after));
  sheet.set("peak_change_bytes", after.peak_bytes - before.peak_bytes);
  sheet.fact(ops.empty() ? "all ops take the same memory"
                         : fmt::format("{} {}", ops.size(), ops.size() == 1 ? "op differs" : "ops differ"));
  add_ops(sheet, ops);
  return sheet;
}

}  // namespace

std::vector<OpDifference> differences(const History& before, const History& after) {
  std::map<std::string, OpDifference> ops;
  add(before, &OpDifference::before, ops);
  add(after, &OpDifference::after, ops);
  std::vector<OpDifference> result;
  for (auto& [name, op] : ops) {
    if (op.peak_change() != 0 || op.allocated_change() != 0 || op.before.blocks != op.after.blocks) {
      result.push_back(std::move(op));
    }
  }
  const auto rank = [](const OpDifference& op) {
    return std::tuple(-std::abs(op.peak_change()), -std::abs(op.allocated_change()));
  };
  std::ranges::stable_sort(result,
                           [&](const OpDifference& a, const OpDifference& b) { return rank(a) < rank(b); });
  return result;
}

void print_difference(const std::string& before_path, const std::string& after_path,
                      const TracingOptions& traced, bool as_json, const Terminal& terminal) {
  Progress progress(0, "");
  const Trace traces[] = {load_trace(before_path, traced, progress),
                          load_trace(after_path, traced, progress)};
  progress.begin(0, "", "following events");
  const History before(traces[0]), after(traces[1]);
  progress.finish();
  const std::vector<OpDifference> ops = differences(before, after);
  Sheet sheet = to_sheet(before, after, ops);
  const std::vector<std::string> paths(after_path.empty() ? 0 : 1, after_path);
  sheet.next = {{command_on("headroom report", paths, traced, {"--html", "report.html"})}};
  print(sheet, as_json, terminal);
}

int run_diff(int argc, char** argv) {
  std::vector<std::string> paths;
  bool as_json = false;
  TracingOptions traced;
  OptionSet set("headroom diff", "Compares two recordings op by op, as headroom report --against does.");
  set.add_arguments("BEFORE AFTER", "Two recordings, or other inputs of headroom report", &paths);
  set.take_command();
  add_tracing_options(set, traced);
  set.add_switch("json", "Print JSON, sizes in bytes", &as_json);
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  if (paths.size() != 2)
    throw InvalidArgument(fmt::format("diff compares two traces; {} given", paths.size()));
  check_tracing_options(set, paths, {"batch", "steps", "device"});
  print_difference(paths[0], paths[1], traced, as_json, set.terminal());
  return kExitDone;
}

}  // namespace headroom::report
