// Trains one replica, single or of a group, in the calling thread. Knows no command line and no other
// replica's devices.
#pragma once

#include <functional>

#include "collective/collective.h"
#include "examples/models/mnist/dataset.h"
#include "examples/models/mnist/train_result.h"
#include "examples/models/mnist/train_settings.h"
#include "runtime/app/runtime.h"
#include "runtime/app/setup.h"

namespace headroom {

// Trains on these devices. `group` has one rank per replica and is null for a single one. The replica sees
// its share of each batch and of the test images; losses, accuracies and the confusion matrix in the result
// are those of all replicas. Only rank 0 loads and saves weights and calls `on_step`; the others start with
// its weights. Throws as Session::run does, and InvalidArgument for weights that cannot be read or written.
void train_replica(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                   Runtime& runtime, const ReplicaDevices& devices, Collective* group,
                   const std::function<void(const StepReport&)>& on_step, TrainResult& result);

}  // namespace headroom
