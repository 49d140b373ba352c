// Plays a program on a simulated twin of a device: how it goes there under a setting. Nothing is computed
// and no byte is touched.
#pragma once

#include <span>

#include "runtime/out_of_memory.h"

namespace headroom {

// What a twin of the options' device is like. `info` is what its driver says; a real GPU is taken for an H200
// with its total and what others hold of it, a CPU for a device without context and libraries.
DeviceProfile twin_of(const RuntimeOptions& options, const MemoryInfo& info);

// A session for each of the targets, made in that order over the same variables and run in turn, until no
// peak rises any more.
Attempt play_program(const Graph& graph, std::span<const Targets> targets, const Setting& setting);

// For programs of one graph: the report of an error that a session on `runtime` threw. Plays what the
// sessions' targets ask for with the plan of the runtime's options.
OutOfMemoryReport explain_out_of_memory(const OutOfMemory& error, const Graph& graph,
                                        std::span<const Targets> targets, const RuntimeOptions& options,
                                        const MemoryInfo& info);

}  // namespace headroom
