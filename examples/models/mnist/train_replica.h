// The training of one replica, alone or with others: in the thread that calls. Knows no command line and no
// other replica's device.
#pragma once

#include <functional>

#include "examples/models/mnist/dataset.h"
#include "examples/models/mnist/train_result.h"
#include "examples/models/mnist/train_settings.h"
#include "runtime/app/runtime.h"
#include "runtime/collective/collective.h"

namespace headroom {

// Trains on the device of that name. `group` has as many ranks as the settings have replicas, and is null for
// one alone. Of each batch the replica sees its share, of the test images too; losses, accuracies and the
// confusion matrix in the result are those of all replicas. The weights start as those of rank 0, which alone
// loads and saves them, and `on_step` is called there alone. Throws as Session::run does, and InvalidArgument
// for weights that cannot be read or written.
void train_replica(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                   Runtime& runtime, const DeviceName& name, Collective* group,
                   const std::function<void(const StepReport&)>& on_step, TrainResult& result);

}  // namespace headroom
