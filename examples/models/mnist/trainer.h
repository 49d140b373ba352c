// Trains the conv net with one strategy, on one device or in replicas on several, and reports what it took.
// Knows no command line.
#pragma once

#include <functional>
#include <string>

#include "examples/models/mnist/dataset.h"
#include "examples/models/mnist/train_result.h"
#include "examples/models/mnist/train_settings.h"
#include "runtime/app/runtime.h"
#include "runtime/collective/collective.h"

namespace headroom {

// Trains and tests, on the device that the runtime's options name or, with several replicas, on the first
// logical devices, a thread for each. Out of memory, library failures and those of a collective end in the
// result, not in an exception, so that strategies can be compared; InvalidArgument (bad settings, fewer
// devices than replicas, unreadable weights) is thrown before anything is trained. `on_step` is called after
// each step, with the loss and the accuracy of the whole batch.
TrainResult train(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                  Runtime& runtime, const std::function<void(const StepReport&)>& on_step = {});

// The same as one rank of `group`, which has as many as the settings have replicas, each in a process of its
// own on `host`: on the device that the runtime's options name. A failure is this rank's alone; without one
// the result is that of all ranks.
TrainResult train_rank(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                       Runtime& runtime, const std::string& host, Collective& group,
                       const std::function<void(const StepReport&)>& on_step = {});

// Fills the result's report, where memory ran out: why, and the smallest change with which the same training
// fits, played on a twin of the device. Takes some tenths of a second.
void explain_failure(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                     Runtime& runtime, TrainResult& result);

}  // namespace headroom
