// A training step on parts of its batch, one after the other, with accumulated gradients ("micro-batches"):
// the values of one part are live at a time. Knows no device and no search.
#pragma once

#include <span>
#include <string>

#include "runtime/graph/graph.h"
#include "runtime/plan/plan.h"

namespace headroom {

// Returns the reason that the step of the targets cannot be split; empty if it can. `part` is the same step
// for 1 / parts of the batch, built the same way, so that its nodes and values have the same ids.
std::string why_not_split(const Graph& whole, const Graph& part, int parts, std::span<const Targets> targets);

// Rewrites the step of the first targets: inputs and updates stay as they are, inputs of the batch are cut
// into parts, and everything between runs once for each part. Values that leave the parts are averaged over
// them (losses, statistics and gradients), or concatenated along the first axis. The loss must be a mean over
// the batch. The result equals that of the whole batch except for rounding; each batch normalization computes
// its statistics from a part, and dropout and random numbers of a batch's shape are others for each part. Throws InvalidArgument if
// why_not_split() has a reason.
void split_batch(Graph& whole, const Graph& part, int parts, std::span<const Targets> targets);

}  // namespace headroom
