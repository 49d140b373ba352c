// Checks a recording against limits, for CI: headroom report --assert, and headroom assert.

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/progress.h"
#include "base/text.h"
#include "runtime/app/option_set.h"
#include "sheet/writers.h"
#include "tools/report/checks.h"
#include "tools/report/load_trace.h"
#include "tools/report/questions.h"
#include "tools/subcommands.h"
#include "tools/workload/input.h"
#include "trace/categorize.h"
#include "trace/read_trace.h"

namespace headroom::report {
namespace {

// A number of the check, as it is and as people read it.
Cell cell_of(const Check& check, double number) {
  const bool is_whole = check.is_bytes || number == static_cast<double>(static_cast<int64_t>(number));
  const Datum value = is_whole ? Datum(static_cast<int64_t>(number)) : Datum(number);
  return {value, check.is_bytes ? shown_as(value, kSize) : fmt::format("{:.6g}", number)};
}

Sheet to_sheet(const std::string& trace, const std::vector<Check>& checks) {
  const auto failed = std::ranges::count_if(checks, [](const Check& check) { return !check.passed(); });
  const std::string verdict = failed > 0 ? fmt::format("{} of {} checks failed", failed, checks.size())
                              : checks.size() == 1 ? "the check passed"
                                                   : fmt::format("all {} checks passed", checks.size());
  Sheet sheet;
  sheet.verdict(fmt::format("{}: {}", trace, verdict), failed == 0 ? Color::kGreen : Color::kRed);
  sheet.set("trace", trace);
  sheet.set("passed", failed == 0);
  SheetTable& table = sheet.table({.key = "checks",
                                   .columns = {{"check", "name"},
                                               {"measured", "measured", kNumber},
                                               {"allowed", "allowed", kNumber},
                                               {"", "passed"}}});
  for (const Check& check : checks) {
    table.add(
        {check.name,
         cell_of(check, check.measured),
         cell_of(check, check.allowed),
         {check.passed(), check.passed() ? "pass" : "FAIL", check.passed() ? Color::kGreen : Color::kRed}});
  }
  return sheet;
}

}  // namespace

void add_limits(OptionSet& set, Limits& limits) {
  set.add_bytes("max-peak", "Maximum live bytes, as requested", &limits.max_peak_bytes);
  set.add_bytes("max-reserved", "Maximum bytes that the strategy reserves", &limits.max_reserved_bytes);
  set.add_number("max-fragmentation",
                 "Maximum share of the idle reserved bytes outside the largest free range, at the peak",
                 &limits.max_fragmentation, 0, 1);
  set.add_integer("max-driver-calls", "Maximum number of driver allocations and releases",
                  &limits.max_driver_calls, 0);
  set.add_switch("no-oom", "Require that no allocation failed", &limits.no_out_of_memory);
  set.add_switch("no-retries", "Require that no allocation was retried after freeing cached memory",
                 &limits.no_retries);
  set.add_switch("no-leaks", "Require that every block was freed", &limits.no_leaks);
}

int assert_limits(const std::string& path, const TracingOptions& traced, const Limits& limits, bool as_json,
                  const Terminal& terminal) {
  if (limits.empty()) throw InvalidArgument("no check given; pass one, such as --max-peak 2GiB");
  Progress progress(0, "");
  const Trace trace = load_trace(path, traced, progress);
  if (is_moment(trace)) {
    throw InvalidArgument(
        fmt::format("{}: a snapshot without a history, so its peak is not known; record it with "
                    "torch.cuda.memory._record_memory_history(enabled=\"all\")",
                    printable(path)));
  }
  progress.begin(0, "", "following events");
  const History history(trace);
  progress.finish();
  const std::vector<Check> checks = check(history, limits);
  Sheet sheet = to_sheet(trace.name, checks);
  const std::vector<std::string> paths(path.empty() ? 0 : 1, path);
  sheet.next = {{command_on("headroom report", paths, traced)}};
  print(sheet, as_json, terminal);
  const bool passed = std::ranges::all_of(checks, [](const Check& check) { return check.passed(); });
  return passed ? kExitDone : kExitCheckFailed;
}

int run_assert(int argc, char** argv) {
  std::vector<std::string> paths;
  Limits limits;
  bool as_json = false;
  TracingOptions traced;
  OptionSet set("headroom assert", "Checks a recording against limits, as headroom report --assert does.");
  set.add_arguments("TRACE", "A recording, or any other input of headroom report", &paths, true, "net");
  set.take_command();
  add_net_option(set, traced);
  add_tracing_options(set, traced);
  add_limits(set, limits);
  set.add_switch("json", "Print JSON, sizes in bytes", &as_json);
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  if (paths.size() > 1) throw InvalidArgument(fmt::format("assert checks one trace; {} given", paths.size()));
  check_inputs(set, paths, traced, {"batch", "steps", "device"});
  return assert_limits(paths.empty() ? "" : paths.front(), traced, limits, as_json, set.terminal());
}

}  // namespace headroom::report
