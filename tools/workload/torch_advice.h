// What to do next with a program of PyTorch, in PyTorch's words; each change is proven by playing the trace
// as it would be with the change. Knows no command line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "allocators/trace/trace.h"
#include "runtime/app/setup.h"

namespace headroom {

// A change with which a trace fits.
struct TorchChange {
  std::string what;  // "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
  std::string why;   // what it costs or does, one line
};

// The smallest change with which a trace of PyTorch fits in that setup, where it does not: expandable
// segments, then checkpoints of as few activations as will do. Nothing when none of these is enough.
std::optional<TorchChange> find_torch_change(const Trace& trace, const RunSetup& setup);

// The trace as it would be if each of these modules were a checkpoint of its own
// (torch.utils.checkpoint): what its forward pass keeps for the backward pass is freed at the end of the
// forward pass and allocated again before the backward pass frees the first of it.
Trace with_checkpoints(const Trace& trace, const std::vector<std::string>& modules);

}  // namespace headroom
