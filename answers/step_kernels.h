// The kernels of a training step that is about to run, and how it keeps to the memory of the options: planned
// with the workspaces that the kernels of its own device take.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "answers/solve.h"
#include "runtime/graph/graph.h"
#include "runtime/session/kernels.h"

namespace headroom {

// Plans the program for the memory of the options before any device is touched; null if they name none, and
// for a real GPU, where make_step_kernels() plans with what its libraries take. Throws MemoryTooSmall.
std::shared_ptr<const MemorySolution> plan_ahead(const Program& program, const RuntimeOptions& options);

struct StepKernels {
  std::shared_ptr<const Kernels> kernels;
  std::shared_ptr<const MemorySolution> memory;  // null without a budget
  std::vector<std::string> notes;                // for the user: what the budget changes beside the memory
};

// Rewrites the graph of the program, which is `graph`, for the memory of the options, if these name one, and
// makes its kernels. `planned` is what was planned ahead for the same program; it is used where
// the kernels are the CPU's, and may be null. On a real GPU the step is planned anew with the process as it
// is now and the workspaces that the libraries' algorithms take, which stay the ones of a run without a
// budget; only if the budget cannot be kept with them are they limited. Throws MemoryTooSmall.
StepKernels make_step_kernels(Graph& graph, const Program& program, const DeviceSet& devices,
                              const KernelSettings& settings, const RuntimeOptions& options,
                              std::shared_ptr<const MemorySolution> planned = nullptr);

}  // namespace headroom
