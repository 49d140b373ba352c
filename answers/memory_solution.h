// What a search for a budget of memory has found: the plan, its costs, and how to say them. Searches for
// nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "runtime/graph/node_schedule.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/solve.h"

namespace headroom {

struct MemorySolution {
  int64_t memory_bytes = 0;  // the budget
  bool keeps = false;        // to it, as played on a twin of the device
  // The batch is split into so many parts, whose graph is `part` (see split_batch); 1: it stays whole.
  int parts = 1;
  std::shared_ptr<const Graph> part = {};
  int loss_parts = 1;             // the loss is split into so many parts (see split_loss)
  bool compresses_norms = false;  // their gradients read 8 bits (see compress_norms)
  bool normalises_parts = false;  // batch normalisation takes its statistics from a part
  NodeSchedule schedule;          // of the program's first session, then; empty where nothing is moved
  std::vector<LeverUse> levers;
  // The process at its peak, as planned for the budget; when that cannot be kept, as planned for the least.
  int64_t process_bytes = 0;
  int64_t process_bytes_without = 0;  // without a budget
  int64_t least_memory_bytes = 0;     // the least budget that is kept; known when this one is not
  double us = 0, us_without = 0;      // a step's nodes, by the model of the device
  int64_t host_bytes = 0;             // of values in host memory at their peak, and of states there
  std::vector<int> host_states = {};  // variables of the optimizer that lie in host memory (see host_state.h)
};

// Rewrites the graph of a program with these targets as the solution says.
void apply(const MemorySolution& solution, Graph& graph, std::span<const Targets> targets);

// No plan that keeps to a budget was found, and nothing was run.
class MemoryTooSmall : public OutOfMemory {
 public:
  // `least_bytes` is the least budget that is kept; 0 when none is, on this device.
  MemoryTooSmall(int64_t memory_bytes, int64_t least_bytes);
  int64_t least_bytes() const { return least_bytes_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  int64_t least_bytes_;
  std::string text_;
};

// What split_batch(), split_loss() and compress_norms() are called among levers.
inline constexpr std::string_view kSplitBatchLever = "split-batch", kSplitLossLever = "split-loss",
                                  kCompressNormsLever = "compress-norms";
// What put_on_host() is called.
inline constexpr std::string_view kHostStateLever = "host-state";
inline bool keeps_bits(const MemorySolution& solution) {
  return solution.parts == 1 && solution.loss_parts == 1 && !solution.compresses_norms;
}
// "in 4 parts" of the batch, or "with the loss in 4 parts", "with norms in 8 bits", or both; empty for none.
std::string describe_parts(const MemorySolution& solution);
// What a solution does to the bits of the weights, one line without an end.
std::string describe_bits(const MemorySolution& solution);

// What the programs of these targets fetch, all of it.
std::vector<Value> all_fetches(std::span<const Targets> targets);

}  // namespace headroom
