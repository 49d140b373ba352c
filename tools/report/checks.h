// Checks a recording against limits, for tests and CI. Knows no command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/report/history.h"

namespace headroom::report {

// The checks to make. Absent limits are not checked.
struct Limits {
  std::optional<int64_t> max_peak_bytes = {};      // live, as requested
  std::optional<int64_t> max_reserved_bytes = {};  // by the strategy from the driver
  std::optional<double> max_fragmentation = {};    // in [0, 1], at the peak
  std::optional<int64_t> max_driver_calls = {};
  bool no_out_of_memory = false;
  bool no_retries = false;
  bool no_leaks = false;  // every block is freed

  bool empty() const;
};

struct Check {
  std::string name;  // "max-peak"
  double measured = 0, allowed = 0;
  bool is_bytes = false;
  bool passed() const { return measured <= allowed; }
};

// Returns one check for each limit, in the order of the fields. Throws InvalidArgument if the trace does not
// record the data of a check.
std::vector<Check> check(const History& history, const Limits& limits);

}  // namespace headroom::report
