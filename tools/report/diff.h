// Compares two recordings op by op. Knows no output.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/report/history.h"

namespace headroom::report {

// The memory of one op in a recording.
struct OpMemory {
  int64_t peak_bytes = 0;       // live at the recording's peak
  int64_t allocated_bytes = 0;  // sum over its blocks
  int64_t blocks = 0;
};

struct OpDifference {
  std::string op;  // empty: blocks without a name
  OpMemory before, after;

  bool is_new() const { return before.blocks == 0; }
  bool is_gone() const { return after.blocks == 0; }
  int64_t peak_change() const { return after.peak_bytes - before.peak_bytes; }
  int64_t allocated_change() const { return after.allocated_bytes - before.allocated_bytes; }
};

// The ops that differ, by descending change at the peak, then by descending change in allocated bytes.
std::vector<OpDifference> differences(const History& before, const History& after);

}  // namespace headroom::report
