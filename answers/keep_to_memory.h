// Programs that keep to the memory of the options they run with. Computes nothing and touches no byte.
#pragma once

#include <optional>
#include <vector>

#include "answers/memory_solution.h"
#include "answers/program.h"
#include "runtime/app/options.h"

namespace headroom {

// The programs with their graphs rewritten for the memory of the options, if these name one, whether it is
// kept or not; Program::memory says. Replicas of one graph share it.
std::vector<Program> keep_to_memory(std::vector<Program> programs, const RuntimeOptions& options);

// Why one of the programs cannot keep to its budget, with the least that it can keep to; nothing when all do.
std::optional<MemoryTooSmall> why_not_kept(const std::vector<Program>& programs);
// Throws it.
void require_kept(const std::vector<Program>& programs);

}  // namespace headroom
