// The next steps for a PyTorch program, in PyTorch's terms; each change is tested by replaying a trace of the
// program with it, or the trace as it would be with the change. Knows no command line.
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

// Returns changes, each with its cost or effect ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  #
// segments grow instead of adding up"), that each make a trace of PyTorch fit in that setup, the smallest
// change first: expandable segments or, if these do not help, our strategy mapped; torch.cuda.empty_cache()
// at one line; checkpoints of the fewest modules in their order. Returns at most one of each kind, and none
// if the trace fits or no change is enough. Without `trace_again`, for a recording, checkpoints are estimated
// by with_checkpoints().
std::vector<std::string> find_torch_changes(const Trace& trace, const RunSetup& setup,
                                            const TraceCheckpoints& trace_again = {});

// Returns the changes with which a request that failed after so many events of a recording would have fitted,
// if the strategy may use `capacity_bytes` of the device. Also empty if the replay has room for the request:
// then nothing is tested.
std::vector<std::string> find_torch_changes(const Trace& trace, int64_t event, int64_t requested_bytes,
                                            int64_t capacity_bytes);

// The trace of a program that calls torch.cuda.empty_cache() wherever this phase begins, or, for kSetup,
// once before the first step.
Trace with_empty_cache(const Trace& trace, StepPhase phase);

}  // namespace headroom
