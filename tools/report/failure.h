// The request that ended a traced program: its size, its place, the free memory, and the reason that it did
// not help. Knows no steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/judge.h"
#include "tools/report/history.h"

namespace headroom::report {

struct Failure {
  int64_t event = 0;  // events before it
  int64_t requested_bytes = 0;
  int64_t driver_bytes = 0;     // bytes that the strategy requested from the driver for it, from its message
  int64_t live_bytes = 0;       // without the request
  int64_t allocated_bytes = 0;  // allocated bytes, after rounding
  int64_t workspace_bytes = 0;  // of blocks that are as large as a workspace of cuBLAS
  std::optional<int64_t> free_bytes;  // on the device
  std::optional<int64_t> reserved_bytes, idle_bytes;
  int64_t idle_pieces = 0;
  std::optional<int64_t> largest_idle_bytes;
  std::string source;     // the user's line, without the folder that all files share
  std::string caller;     // the line of the loop over the steps that led there; may be empty
  std::string last_line;  // without a stack: the loop's line before, whose backward it probably is
  std::string op, tensor, module, stack;
  int32_t stack_name = 0;  // position of the stack in Trace::names
  Judgment judgment;       // reason that the request did not fit
};

// Returns the failure that ended the program; nullopt if there is none.
std::optional<Failure> find_failure(const History& history);

}  // namespace headroom::report
