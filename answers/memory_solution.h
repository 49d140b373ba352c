// The result of a search for a budget of memory: the levers, the schedule of the program's step, their
// costs, and how to word them. Searches for nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answers/program.h"
#include "base/errors.h"
#include "runtime/graph/node_schedule.h"
#include "runtime/plan/frontier.h"
#include "runtime/plan/plan.h"

namespace headroom {

struct MemorySolution {
  int64_t memory_bytes = 0;             // the budget
  bool fits = false;                    // in the budget, as played on a twin of the device
  std::vector<Lever> levers = {};       // in the order in which to apply them
  Program planned = {};                 // as it was played
  NodeSchedule schedule = {};           // of the first session, with the levers; empty if nothing is moved
  std::vector<std::string> notes = {};  // for the user: what else changes
  // The process at its peak, as planned for the budget; when that is too small, as planned for the least.
  int64_t process_bytes = 0;
  int64_t process_bytes_without = 0;  // without a budget
  int64_t least_memory_bytes = 0;     // the least budget that is enough; known when this one is not
  double us = 0, us_without = 0;      // a step's nodes, by the model of the device
  int64_t host_bytes = 0;             // peak bytes of values in host memory, and of states there
};

// Rewrites the graph of a program with these targets as the solution says.
void apply(const MemorySolution& solution, Graph& graph, std::span<const Targets> targets);

// No plan within a budget was found, and nothing was run.
class MemoryTooSmall : public OutOfMemory {
 public:
  // `least_bytes` is the least budget that is enough; 0 when none is, on this device.
  MemoryTooSmall(int64_t memory_bytes, int64_t least_bytes);
  int64_t least_bytes() const { return least_bytes_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  int64_t least_bytes_;
  std::string text_;
};

inline constexpr std::string_view kSplitBatchLever = "split-batch", kSplitLossLever = "split-loss",
                                  kCompressNormsLever = "compress-norms", kHostStateLever = "host-state";
// The amount of the lever of that name, such as a number of parts; 0: it is not used.
int amount_of(const MemorySolution& solution, std::string_view lever);
bool keeps_bits(const MemorySolution& solution);
// "in 4 parts", "with the loss in 4 parts", "with norms in 8 bits", or several of them; empty for none.
std::string describe_parts(const MemorySolution& solution);
// Describes the effect of a solution on the bits of the weights, one line without an end.
std::string describe_bits(const MemorySolution& solution);

}  // namespace headroom
