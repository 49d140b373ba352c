#include "tools/report/checks.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "tools/workload/recorded_setup.h"

namespace headroom::report {

bool Limits::empty() const {
  return !max_peak_bytes && !max_reserved_bytes && !max_fragmentation && !max_driver_calls &&
         !no_out_of_memory && !no_retries && !no_leaks;
}

std::vector<Check> check(const History& history, const Limits& limits) {
  const auto require = [&](bool known, std::string_view what) {
    if (known) return;
    // A program that was traced without a GPU has run on no device.
    const bool is_traced = traced_card_bytes(history.trace).has_value();
    throw InvalidArgument(fmt::format(
        "{}: the trace does not record {}; {}", history.trace.name, what,
        is_traced ? "it is a simulation, not a run: `headroom predict` says whether it fits, in how much"
                  : "record one with --record"));
  };
  std::vector<Check> checks;
  const auto add = [&](const char* name, double measured, double allowed, bool is_bytes) {
    checks.push_back({name, measured, allowed, is_bytes});
  };
  if (limits.max_peak_bytes) {
    add("max-peak", static_cast<double>(history.peak_bytes), static_cast<double>(*limits.max_peak_bytes),
        true);
  }
  if (limits.max_reserved_bytes) {
    require(history.peak_reserved_bytes.has_value(), "reserved memory");
    add("max-reserved", static_cast<double>(*history.peak_reserved_bytes),
        static_cast<double>(*limits.max_reserved_bytes), true);
  }
  if (limits.max_fragmentation) {
    require(history.fragmentation.has_value(), "the addresses of reserved memory");
    add("max-fragmentation", *history.fragmentation, *limits.max_fragmentation, false);
  }
  if (limits.max_driver_calls) {
    require(history.knows_driver, "driver calls");
    add("max-driver-calls", static_cast<double>(history.driver_calls),
        static_cast<double>(*limits.max_driver_calls), false);
  }
  if (limits.no_out_of_memory || limits.no_retries) {
    require(!history.trace.device_events.empty(), "failures and retries");
  }
  if (limits.no_out_of_memory) add("no-oom", static_cast<double>(history.out_of_memory), 0, false);
  if (limits.no_retries) add("no-retries", static_cast<double>(history.retries), 0, false);
  if (limits.no_leaks) add("no-leaks", static_cast<double>(history.live_at_end_bytes), 0, true);
  return checks;
}

}  // namespace headroom::report
