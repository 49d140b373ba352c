// The kernels of a training step that is about to run, and how it keeps to the memory of the options: planned
// with the workspaces that the kernels of its own device take.
#pragma once

#include <memory>
#include <utility>

#include "answers/solve.h"
#include "runtime/graph/graph.h"
#include "runtime/session/kernels.h"

namespace headroom {

// Plans the program for the memory of the options before any device is touched; null if they name none, and
// for a real GPU, where make_step_kernels() plans with what its libraries take. Throws MemoryTooSmall.
std::shared_ptr<const MemorySolution> plan_ahead(const Program& program, const RuntimeOptions& options);

// Rewrites the graph of the program, which is `graph`, for the memory of the options, if these name one, and
// makes its kernels. The solution that it returns is null without a budget. `planned` is what was planned
// ahead for the same program; it is used where the kernels are the CPU's, and may be null. On a real GPU the
// step is planned anew with the process as it is now and the workspaces that the libraries' algorithms take,
// which stay the ones of a run without a budget; only if the budget cannot be kept with them are they
// limited. Throws MemoryTooSmall.
using KernelsAndMemory = std::pair<std::shared_ptr<const Kernels>, std::shared_ptr<const MemorySolution>>;
KernelsAndMemory make_step_kernels(Graph& graph, const Program& program, const DeviceSet& devices,
                                   const KernelSettings& settings, const RuntimeOptions& options,
                                   std::shared_ptr<const MemorySolution> planned = nullptr);

}  // namespace headroom
