// The rules for verdicts: each finds one mistake of a program in its allocations, or nothing.
#pragma once

#include <optional>
#include <vector>

#include "tools/report/verdict.h"

namespace headroom::report {

// Facts that the rules share, computed once.
class Evidence {
 public:
  Evidence(const History& history, const Steps& steps, const Failure* failure,
           std::optional<int64_t> device_bytes);

  const History& history;
  const Trace& trace;
  const std::vector<Step>& steps;
  const Failure* const failure;  // null if the program did not fail
  // Free memory of the device at the end, if known.
  const std::optional<int64_t> free_bytes;
  // Events before the failure, or before all was freed at the end.
  const int64_t stop;
  // By block: the moments of its allocation.
  std::vector<Moment> born;
  // The position in `steps` of each block's step; -1: none.
  std::vector<int> step_of;
  size_t last = 0;  // position in `steps` of the last step with an allocation before `stop`

  bool stays(size_t block) const { return history.is_live(block, stop); }
  // In whose module calls a block was allocated.
  bool in_module(size_t block) const;
  std::string place(size_t block) const;  // "snap.py:8"
  // Bytes that matter: more than a hundredth of the peak, or enough for the request that failed.
  bool matters(int64_t bytes) const;

 private:
  mutable std::vector<signed char> in_module_;  // by stack; -1: not known yet
};

// Formats as "64 MiB", "1.54 GiB": without trailing zeros.
std::string short_size(int64_t bytes);

std::vector<Finding> find_leaks(const Evidence& evidence);
// Steps that keep graphs until they end, though they never call backward, in a program that fails in one.
std::optional<Finding> find_unused_graphs(const Evidence& evidence);
std::optional<Finding> find_growing_batch(const Evidence& evidence);
// Finds a training whose largest tensor grows from step to step, though nothing is kept.
std::optional<Finding> find_growing_work(const Evidence& evidence);
std::optional<Finding> find_kept_gradients(const Evidence& evidence);
std::optional<Finding> find_optimizer_state(const Evidence& evidence);
// State that optimizers made in several steps and that stays: those before the last one are still referred
// to.
std::optional<Finding> find_optimizers_kept(const Evidence& evidence);
// A backward pass that fails to make the gradient of a large weight: of a quarter of what is live or more.
std::optional<Finding> find_dense_gradient(const Evidence& evidence);
std::optional<Finding> find_fragmentation(const Evidence& evidence);

}  // namespace headroom::report
