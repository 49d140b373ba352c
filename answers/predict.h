// Predicts if a program fits on its machine under a strategy, by how much, and what takes the memory.
// Computes no values. Knows no command line and no file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "answers/live_set.h"
#include "answers/play.h"
#include "answers/workload.h"
#include "runtime/app/setup.h"

namespace headroom {

struct Prediction {
  bool fits = false;
  // By how much the memory of each device (or the limit, if that binds first) could shrink; if negative, it
  // lacks that much. Empty if it was not searched for, or if the program fits on no device.
  std::optional<int64_t> margin_bytes = {};
  // The process on the fullest device at its peak, as the driver sees it, and its parts; where it does not
  // fit, on the smallest device on which it does, or 0 where that was not searched for.
  int64_t total_bytes = 0, context_bytes = 0, library_bytes = 0;
  int64_t reserved_bytes = 0, allocated_bytes = 0, requested_bytes = 0;
  bool total_is_most = false;                // replicas share a GPU, where their peaks may meet or not
  size_t fullest = 0;                        // position of that device
  std::string reason = {};                   // why it does not fit, one line
  std::optional<MemoryFacts> facts = {};     // about the request without room
  std::optional<int64_t> failed_event = {};  // its number, from 1 on; 0: the pool itself
  std::vector<PlayedDevice> devices = {};    // as traced; without peaks where it fits on no device
  int64_t plays = 0;                         // that it took
};

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
std::vector<MemoryShare> parts_of(const Traced& program, const RunSetup& setup, const Prediction& prediction,
                                  const LiveSet& live);

}  // namespace headroom
