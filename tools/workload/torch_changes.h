// What to do next with a program of PyTorch, in PyTorch's words; each change is proven by playing a trace of
// the program with it, or the trace as it would be with the change. Knows no command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/app/setup.h"
#include "tools/workload/checkpoints.h"
#include "trace/trace.h"

namespace headroom {

// PyTorch's allocator of these options with segments that grow; nothing where they have another strategy, or
// such segments.
std::optional<std::string> with_expandable_segments(const std::string& strategy);

// A change with which a trace fits.
struct TorchChange {
  std::string what;  // "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
  std::string why;   // what it costs or does, one line

  std::string text() const { return what + "  # " + why; }
};

// The changes that each make a trace of PyTorch fit in that setup, where it does not, the smallest change
// first: expandable segments or, where these do not help, our strategy mapped; torch.cuda.empty_cache() at
// one line; checkpoints of the fewest modules in their order. At most one of each kind; empty when none is
// enough. Without `trace_again`, of a recording, checkpoints are estimated by with_checkpoints().
std::vector<TorchChange> find_torch_changes(const Trace& trace, const RunSetup& setup,
                                            const TraceCheckpoints& trace_again = {});

// The same for a recording that ends in a request that found no room: the changes with which it would have,
// where the strategy may take `capacity_bytes` of the device. Empty, too, where the replay finds room for it
// as it is: then nothing is proven.
struct RecordedFailure {
  int64_t event = 0;  // how many events came before
  int64_t requested_bytes = 0, capacity_bytes = 0;
};
std::vector<TorchChange> find_torch_changes(const Trace& trace, const RecordedFailure& failure);

// The trace of a program that calls torch.cuda.empty_cache() wherever this phase begins, or, for kSetup,
// once before the first step.
Trace with_empty_cache(const Trace& trace, StepPhase phase);

}  // namespace headroom
