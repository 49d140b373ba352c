// Collectives of GPUs: the way in for code that must not see the headers of CUDA and NCCL. A build without
// them answers too.
#pragma once

#include <memory>

#include "runtime/collective/collective.h"
#include "runtime/collective/device_collective.h"
#include "runtime/device/device.h"

namespace headroom {

// Over NCCL. All ranks of `host` must make it together, each with its device, processes and threads alike;
// both must outlive it. Null, on all ranks, where NCCL is not for them: a device is no NVIDIA GPU, two ranks
// are on one GPU, or NCCL is missing somewhere. To destroy it is to die, as Collective says; work that was
// queued before must be done on all ranks by then, and captures of calls destroyed. Throws
// CollectiveError as `host` does, LibraryError when NCCL does not start.
std::unique_ptr<DeviceCollective> make_gpu_collective(Device& device, Collective& host);

// In the memory of one GPU, for ranks that are threads of one process with the same `device`. Made together
// and destroyed as the one above. Null, on all ranks, where theirs differ or it is no NVIDIA GPU. Throws
// CollectiveError as `host` does.
std::unique_ptr<DeviceCollective> make_shared_gpu_collective(Device& device, Collective& host);

}  // namespace headroom
