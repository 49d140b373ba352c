// Trains the conv net on one device or in replicas on several, and measures it. Knows no command line.
#pragma once

#include <functional>
#include <string>

#include "collective/collective.h"
#include "examples/models/mnist/dataset.h"
#include "examples/models/mnist/train_result.h"
#include "examples/models/mnist/train_settings.h"
#include "runtime/app/runtime.h"

namespace headroom {

// Trains and tests on the device of the runtime's options or, with several replicas, on the first logical
// devices, one thread each. The result reports out of memory and failures of libraries and collectives, so
// that strategies can be compared. Throws InvalidArgument before training for bad settings, too few devices
// or unreadable weights. `on_step` is called after each step with the loss and the accuracy of the whole
// batch.
TrainResult train(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                  Runtime& runtime, const std::function<void(const StepReport&)>& on_step = {});

// Trains as one rank of `group`, which has one rank per replica, each in its own process; this one runs on
// `host`, on the device of the runtime's options. The result covers all ranks, or this one's failure.
TrainResult train_rank(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                       Runtime& runtime, const std::string& host, Collective& group,
                       const std::function<void(const StepReport&)>& on_step = {});

// If memory ran out, sets result.report: the cause, and the smallest change with which the same training
// fits, found on a simulated twin of the device within tenths of a second.
void explain_failure(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                     Runtime& runtime, TrainResult& result);

}  // namespace headroom
