// The machine and the strategy that a trace was recorded with. Knows no command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/app/options.h"
#include "trace/trace.h"

namespace headroom {

// Returns true if PyTorch made the trace: by a snapshot, or as a traced program.
bool is_of_torch(const Trace& trace);

// The strategy that the traced program used, as text for parse_strategy: as recorded, else RMM's pool for its
// logs, else PyTorch's, with the settings of a snapshot, else with those of PYTORCH_CUDA_ALLOC_CONF.
std::string recorded_strategy(const Trace& trace);

// The program of ours that a recording names (see record_program()), its batch and device, as words of a
// command line; empty where it names none.
std::vector<std::string> recorded_program(const Trace& trace);

// The bytes that a program requested at once with each of some seeds for its random weights, rising; the
// trace is the last of them. Empty where it was traced once, because they decide no size.
std::vector<int64_t> seed_peaks(const Trace& trace);

// A sentence about the values that decide sizes, where the tracer assumed any, with their range; without a
// full stop.
std::string assumed_values(const Trace& trace);

// The name of the card that a program of PyTorch was traced for; empty for a recording.
std::string traced_card(const Trace& trace);

// The memory of the card that a program was traced for; nothing for a recording.
std::optional<int64_t> traced_card_bytes(const Trace& trace);

// Returns true if the trace has any fact about its device.
bool names_device(const Trace& trace);

// The options with the trace's own device and what other processes held of it: as the driver said last; the
// card that a program was traced for; of a snapshot with a failed request, the smallest card that has what
// was free and reserved then. An H200 where the trace does not say.
RuntimeOptions with_recorded_device(RuntimeOptions options, const Trace& trace);

}  // namespace headroom
