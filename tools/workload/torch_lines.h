// Changes of a PyTorch program in PyTorch's words. Knows no search.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/workload/solve_torch.h"

namespace headroom {

// The lines of the program that make the changes. `batch` is that of the program; 0: unknown.
std::vector<std::string> torch_lines(const ProgramSolution& solution, const ProgramTrial& trial,
                                     int64_t batch);

// Returns the effects of the changes on the results, a line each; empty if there are none.
std::vector<std::string> effects_of(const ProgramSolution& solution, const ProgramTrial& trial);

// "8 checkpoints, fused optimizer, 4 parts of the batch", or "as it is".
std::string describe(const ProgramTrial& trial);
// Describes each trial, in words that tell them apart: "8 checkpoints (h.3-9.mlp, h.0), fused optimizer" if
// another one has as many of other modules.
std::vector<std::string> describe_apart(std::span<const ProgramTrial> trials);

// "h.3-9.mlp, h.0"
std::string modules_text(const std::vector<std::string>& paths);

}  // namespace headroom
