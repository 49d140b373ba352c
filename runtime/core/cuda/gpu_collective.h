// A collective between GPUs that each have one rank: the way in for code that must not see NCCL's header. A
// build without NCCL answers too.
#pragma once

#include <memory>

#include "runtime/core/collective.h"
#include "runtime/core/device.h"
#include "runtime/core/device_collective.h"

namespace headroom {

// Over NCCL. All ranks of `host` must make it together, each with its device, processes and threads alike;
// both must outlive it. Null, on all ranks, where NCCL is not for them: a device is no NVIDIA GPU, two ranks
// are on one GPU, or NCCL is missing somewhere. To destroy it is to die, as Collective says; work that was
// queued before must be done on all ranks by then, and what has recorded calls destroyed. Throws
// CollectiveError as `host` does, LibraryError when NCCL does not start.
std::unique_ptr<DeviceCollective> make_gpu_collective(Device& device, Collective& host);

}  // namespace headroom
