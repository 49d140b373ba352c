// What `headroom report` answers beside the view of one recording: limits that it must keep, and what changed
// since another. `assert` and `diff`, the earlier names of both, answer with the same.
#pragma once

#include <string>
#include <string_view>

#include "base/terminal.h"
#include "runtime/app/option_set.h"
#include "tools/report/checks.h"
#include "tools/trace/tracing_options.h"

namespace headroom::report {

inline constexpr std::string_view kLimitOptions[] = {
    "max-peak", "max-reserved", "max-fragmentation", "max-driver-calls", "no-oom", "no-retries", "no-leaks"};
void add_limits(OptionSet& set, Limits& limits);

// Prints the checks of a recording, or of a program. Returns the exit code.
int assert_limits(const std::string& path, const TracingOptions& traced, const Limits& limits, bool as_json,
                  const Terminal& terminal);

// Prints which ops take more or less in `after`.
void print_difference(const std::string& before, const std::string& after, const TracingOptions& traced,
                      bool as_json, const Terminal& terminal);

}  // namespace headroom::report
