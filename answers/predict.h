// Predicts if a program fits on its machine under a strategy, by how much, and what takes the memory.
// Computes no values. Knows no command line and no file.
#pragma once

#include <cstdint>
#include <optional>

#include "answers/live_set.h"
#include "answers/play.h"
#include "answers/workload.h"
#include "runtime/app/setup.h"

namespace headroom {

// The setup of options for a prediction. Throws InvalidArgument for the CPU, and as setup_of does.
RunSetup setup_to_fit(const RuntimeOptions& options);

// The setup with GPUs of that total; a budget that exceeds what is free there is lowered to that, as for a
// run.
RunSetup with_total(RunSetup setup, int64_t total_bytes);
// A budget (--memory) of a program that is not planned for it: the setup with a device of which the process
// may take that much, whole pages as the driver counts them. The setup itself where it has none.
RunSetup with_budget(RunSetup setup);

// The setup with a strategy that is ready to take that program, which takes time for some: once for all
// predictions. Throws InvalidArgument for a program that the strategy cannot take.
RunSetup prepared(const Traced& program, RunSetup setup);

// Predicts with the margin. Searches for it with samples between the whole memory and none, see
// docs/predict.md. Throws InvalidArgument for a setup that contradicts itself.
Prediction predict(const Traced& program, const RunSetup& setup);
// Predicts without the margin, in a single play.
Prediction outcome(const Traced& program, const RunSetup& setup);
// Returns true if the program fits with `margin_bytes` less free memory on every GPU.
bool fits(const Traced& program, const RunSetup& setup, int64_t margin_bytes = 0);
// Returns true if variables and live results alone exceed a device, so that no strategy can fit.
bool is_too_large(const Traced& program, const RunSetup& setup, int64_t margin_bytes = 0);

// Returns the least total memory of the GPUs with which the program fits, so that no sample between it and
// the present total (or the first total above it that fits) fails. Returns nothing if it fits on no device.
// On a long trace less memory may suffice, because the search ends after some millions of events.
std::optional<int64_t> least_total_bytes(const Traced& program, const RunSetup& setup,
                                         const PlayOptions& options = {});

// Returns the live memory of the fullest device at its peak; its categories include devices that share the
// same GPU.
LiveSet live_at_peak(const Traced& program, const RunSetup& setup, const Prediction& prediction);
// The parts of the total: categories, what arenas, rounding and the strategy leave unused, context and
// libraries.
MemoryShares parts_of(const Traced& program, const RunSetup& setup, const Prediction& prediction,
                      const LiveSet& live);

}  // namespace headroom
