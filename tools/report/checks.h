// What can be asked of a recording in a test or a pipeline. Knows no command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/report/history.h"

namespace headroom::report {

// What is asked; what is not set is not.
struct Demands {
  std::optional<int64_t> most_peak_bytes = {};      // live, as requested
  std::optional<int64_t> most_reserved_bytes = {};  // by the strategy from the driver
  std::optional<double> most_fragmentation = {};    // in [0, 1], at the peak
  std::optional<int64_t> most_driver_calls = {};
  bool no_out_of_memory = false;
  bool no_retries = false;
  bool no_leaks = false;  // nothing is live at the end

  bool empty() const;
};

struct Check {
  std::string name;  // "max-peak"
  double measured = 0, allowed = 0;
  bool is_bytes = false;
  bool holds() const { return measured <= allowed; }
};

// One for each demand, in the order above. Throws InvalidArgument when the trace does not say what is asked.
std::vector<Check> check(const History& history, const Demands& demands);

}  // namespace headroom::report
