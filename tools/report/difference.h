// Two recordings of one program, op by op: what grew, what is new. Knows no output.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/report/history.h"

namespace headroom::report {

// What one op has of a recording.
struct OpMemory {
  int64_t peak_bytes = 0;       // live at the recording's peak
  int64_t allocated_bytes = 0;  // of all its blocks
  int64_t blocks = 0;
};

struct OpDifference {
  std::string op;  // empty: blocks that nobody put a name to
  OpMemory before, after;

  bool is_new() const { return before.blocks == 0; }
  bool is_gone() const { return after.blocks == 0; }
  int64_t peak_change() const { return after.peak_bytes - before.peak_bytes; }
  int64_t allocated_change() const { return after.allocated_bytes - before.allocated_bytes; }
};

// The ops whose memory differs, the largest change at the peak first, then the largest of what they allocate.
std::vector<OpDifference> differences(const History& before, const History& after);

}  // namespace headroom::report
