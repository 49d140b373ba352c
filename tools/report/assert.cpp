// headroom assert: whether a recording keeps to what is asked of it; for CI.

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "allocators/trace/read_trace.h"
#include "runtime/app/option_set.h"
#include "runtime/base/bytes.h"
#include "runtime/base/command_line.h"
#include "runtime/base/errors.h"
#include "tools/report/checks.h"
#include "tools/report/load_trace.h"
#include "tools/subcommands.h"

namespace headroom::report {
namespace {

using Json = nlohmann::ordered_json;

std::string shown(const Check& check, double value) {
  if (check.is_bytes) {
    const auto bytes = static_cast<int64_t>(value);
    return fmt::format("{} ({})", bytes, format_bytes(bytes));
  }
  return fmt::format("{:.6g}", value);
}

Json number(const Check& check, double value) {
  return check.is_bytes || value == static_cast<double>(static_cast<int64_t>(value))
             ? Json(static_cast<int64_t>(value))
             : Json(value);
}

}  // namespace

int run_assert(int argc, char** argv) {
  std::vector<std::string> paths;
  Demands demands;
  std::optional<double> calls;
  bool as_json = false;
  OptionSet set("headroom assert", "Says whether a recording keeps to limits; exit code 5 when it does not.");
  set.add_arguments("TRACE", "A recording, or a file of any other format that headroom report reads", &paths);
  set.add_bytes("max-peak", "Most bytes live at once, as tensors asked for them", &demands.most_peak_bytes);
  set.add_bytes("max-reserved", "Most bytes that the strategy may hold", &demands.most_reserved_bytes);
  set.add_number("max-fragmentation",
                 "Most of the idle reserved bytes at the peak outside the largest free range, as a share",
                 &demands.most_fragmentation, 0, 1);
  set.add_number("max-driver-calls", "Most allocations and releases by the driver", &calls, 0, 1e15);
  set.add_switch("no-oom", "Memory never ran out", &demands.no_out_of_memory);
  set.add_switch("no-retries", "No request had to wait until memory came back", &demands.no_retries);
  set.add_switch("no-leaks", "Nothing is live at the end", &demands.no_leaks);
  set.add_switch("json", "Print JSON, sizes in bytes", &as_json);
  set.set_examples(
      "  headroom assert run.trace --max-peak 2GiB --no-oom --no-retries\n"
      "  headroom assert run.trace --max-fragmentation 0.2 --max-driver-calls 100 --json\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  if (paths.size() != 1) throw InvalidArgument(fmt::format("{} traces; the checks are of one", paths.size()));
  if (calls) demands.most_driver_calls = static_cast<int64_t>(*calls);
  if (demands.empty()) throw InvalidArgument("nothing is asked: pass a check, such as --max-peak 2GiB");
  const Trace trace = load_trace(paths[0]);
  const History history(trace);
  const std::vector<Check> checks = check(history, demands);
  const auto failed =
      std::count_if(checks.begin(), checks.end(), [](const Check& check) { return !check.holds(); });
  if (as_json) {
    Json json = {{"trace", trace.name}, {"holds", failed == 0}, {"checks", Json::array()}};
    for (const Check& check : checks) {
      json["checks"].push_back({{"name", check.name},
                                {"measured", number(check, check.measured)},
                                {"allowed", number(check, check.allowed)},
                                {"holds", check.holds()}});
    }
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}\n\n{:<18} {:>28} {:>28}\n",
               failed == 0
                   ? fmt::format("{}: {}", printable_name(trace.name),
                                 checks.size() == 1 ? "the check holds"
                                                    : fmt::format("all {} checks hold", checks.size()))
                   : fmt::format("{}: {} of {} checks do not hold", printable_name(trace.name), failed,
                                 checks.size()),
               "check", "measured", "allowed");
    for (const Check& check : checks) {
      fmt::print("{:<18} {:>28} {:>28}  {}\n", check.name, shown(check, check.measured),
                 shown(check, check.allowed), check.holds() ? "holds" : "DOES NOT HOLD");
    }
    fmt::print("\nnext: headroom report {}\n", shell_word(paths[0]));
  }
  return failed == 0 ? kExitDone : kExitCheckFailed;
}

}  // namespace headroom::report
