// Collectives of GPUs, for code that must not see the headers of CUDA and NCCL. A build without them returns
// null.
#pragma once

#include <memory>

#include "collective/collective.h"
#include "collective/device_collective.h"
#include "device/device.h"

namespace headroom {

// Makes a collective over NCCL, for ranks that are processes or threads. All ranks of `host` must make it
// together, each with its device; both must outlive it. Returns null, on all ranks, if a device is not an
// NVIDIA GPU, two ranks are on one GPU, or NCCL is missing on a rank. Destroying it means that the rank has
// died, as in Collective; by then all queued work must be done on all ranks and captures of calls destroyed.
// Throws CollectiveError as `host` does, and LibraryError if NCCL does not start.
std::unique_ptr<DeviceCollective> make_gpu_collective(Device& device, Collective& host);

// In the memory of one GPU, for ranks that are threads of one process with the same `device`. Made and
// destroyed as the one above. Null, on all ranks, if their devices differ or are no NVIDIA GPU. Throws
// CollectiveError as `host` does.
std::unique_ptr<DeviceCollective> make_shared_gpu_collective(Device& device, Collective& host);

}  // namespace headroom
