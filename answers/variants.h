// Changes of a program with which its step takes less memory than any schedule of its nodes: parts of the
// batch or of the loss, norms in 8 bits, states of the optimizer in host memory. Knows no budget and no
// search.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "answers/memory_solution.h"
#include "answers/program.h"

namespace headroom {

// Changes that a solver may make to a program. Each is empty if the program cannot be changed in that way.
std::optional<Lever> compressed_norms(const Program& program);
// `step_bytes`: what the step takes without it; small logits are not worth a search.
std::optional<Lever> loss_in_parts(const Program& program, int parts, int64_t step_bytes);
std::optional<Lever> batch_in_parts(const Program& program, int parts);
// From the fewest bytes on, all in `host_bytes`.
std::vector<Lever> states_on_host(const Program& program, int64_t host_bytes);

// The program with that change, for parts of its batch as well.
Program changed(const Program& program, const Lever& change);
// Returns the bytes of the program's variables in host memory.
int64_t host_variable_bytes(const Graph& graph);

}  // namespace headroom
