// Descriptions of collective calls, which the ranks of a group compare before any byte moves. Knows no rank
// and no transport.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace headroom {

// The parts of a call that all ranks must agree on.
struct CollectiveCall {
  enum class Kind : int64_t { kAllReduceSum, kBroadcast, kBarrier };
  Kind kind = Kind::kBarrier;
  int64_t count = 0;  // floats of a sum, bytes of a broadcast
  int64_t root = 0;   // root of a broadcast
  bool operator==(const CollectiveCall&) const = default;

  // "all_reduce_sum", "broadcast", "barrier".
  const char* name() const;
};

// "rank 0 called barrier, rank 2 called all_reduce_sum of 7 floats".
std::string mismatch_text(const CollectiveCall& of_first, int rank, const CollectiveCall& of_rank);

// Throws InvalidArgument when a group of `size` ranks has no rank `root`.
void check_root(int root, int size);
// Throws InvalidArgument for a timeout outside 1 ms to 1 year.
void check_collective_timeout(std::chrono::milliseconds timeout);

}  // namespace headroom
