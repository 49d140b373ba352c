#include "tools/report/checks.h"

#include <fmt/format.h>

#include "runtime/base/errors.h"

namespace headroom::report {

bool Demands::empty() const {
  return !most_peak_bytes && !most_reserved_bytes && !most_fragmentation && !most_driver_calls &&
         !no_out_of_memory && !no_retries && !no_leaks;
}

std::vector<Check> check(const History& history, const Demands& demands) {
  const auto require = [&](bool known, std::string_view what) {
    if (known) return;
    throw InvalidArgument(
        fmt::format("{}: the trace does not say {}; a recording of Headroom does", history.trace.name, what));
  };
  std::vector<Check> checks;
  const auto add = [&](const char* name, double measured, double allowed, bool is_bytes) {
    checks.push_back({name, measured, allowed, is_bytes});
  };
  if (demands.most_peak_bytes) {
    add("max-peak", static_cast<double>(history.peak_bytes), static_cast<double>(*demands.most_peak_bytes),
        true);
  }
  if (demands.most_reserved_bytes) {
    require(history.peak_reserved_bytes.has_value(), "what was reserved");
    add("max-reserved", static_cast<double>(*history.peak_reserved_bytes),
        static_cast<double>(*demands.most_reserved_bytes), true);
  }
  if (demands.most_fragmentation) {
    require(history.fragmentation.has_value(), "where the reserved memory lies");
    add("max-fragmentation", *history.fragmentation, *demands.most_fragmentation, false);
  }
  if (demands.most_driver_calls) {
    require(history.knows_driver, "how often the driver was called");
    add("max-driver-calls", static_cast<double>(history.driver_calls),
        static_cast<double>(*demands.most_driver_calls), false);
  }
  if (demands.no_out_of_memory || demands.no_retries) {
    require(!history.trace.device_events.empty(), "whether memory ran out");
  }
  if (demands.no_out_of_memory) add("no-oom", static_cast<double>(history.out_of_memory), 0, false);
  if (demands.no_retries) add("no-retries", static_cast<double>(history.retries), 0, false);
  if (demands.no_leaks) add("no-leaks", static_cast<double>(history.live_at_end_bytes), 0, true);
  return checks;
}

}  // namespace headroom::report
