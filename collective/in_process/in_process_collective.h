// Ranks as threads of one process: replicas on the CPU and on simulated GPUs. Knows no device and starts no
// thread.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "collective/collective.h"

namespace headroom {

// PyTorch's, for NCCL process groups.
inline constexpr std::chrono::milliseconds kCollectiveTimeout = std::chrono::minutes(10);

// The collectives of one group of `size` ranks, in rank order, each to be moved into the thread of its rank.
// The group breaks when a rank waits longer than `timeout` for another. Sums are taken in rank order,
// ((x0 + x1) + x2) + ... Throws InvalidArgument for fewer than one rank, or a timeout outside 1 ms to 1 year.
std::vector<std::unique_ptr<Collective>> make_in_process_group(
    int size, std::chrono::milliseconds timeout = kCollectiveTimeout);

}  // namespace headroom
