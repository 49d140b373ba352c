// Chooses among the plans that a library offers for one problem: each is timed once on this machine, and the
// costs are kept on disk. Knows no library.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/library/plan_cache.h"

namespace headroom::cuda {

struct PlanCandidate {
  PlanChoice choice;  // its time is not known yet
  // Computes the problem on operands that start at `operands`.
  std::function<void(std::byte* operands, void* workspace, cudaStream_t stream)> run;
};

// What a library says of one problem.
struct PlanSearch {
  std::string problem;  // names it, with everything that plans depend on but the machine
  int64_t operand_bytes = 0;
  // The plans that need no more than the workspace limit, the library's best guess first. Stops when there
  // are `enough`: making one ready takes time.
  std::function<std::vector<PlanCandidate>(size_t enough)> candidates;
  // Makes the plan of a choice the one to run. False when the library does not take it: it was kept on disk
  // and may be anything.
  std::function<bool(const PlanChoice&)> use;
};

// Uses the fastest plan within request.settings.workspace_limit_bytes and returns it. Without device memory
// to time plans in, the library's best guess. Throws LibraryError naming the problem when there is no plan.
PlanChoice choose_plan(const Request& request, const PlanSearch& search);

}  // namespace headroom::cuda
