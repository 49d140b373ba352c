// The state of an allocator at its first failure: the requester, the live blocks, and the block that splits
// the free memory. Knows no strategy and no graph.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocators/allocator.h"
#include "allocators/observer.h"

namespace headroom {

struct LiveBlock {
  std::string op, tensor, source;
  MemoryCategory category = MemoryCategory::kOther;
  int64_t bytes = 0;  // as requested
};

// The blocks that split free memory.
struct PinningBlock {
  LiveBlock block;          // the largest
  int64_t others = 0;       // number of further ones
  int64_t opens_bytes = 0;  // contiguous without them
};

struct FailedRequest {
  MemoryFacts facts;
  std::vector<LiveBlock> live;  // the largest first
  std::optional<PinningBlock> pin;
};

class FailureObserver {
 public:
  // Becomes the allocator's observer and out-of-memory handler; must outlive the allocator.
  void watch(Allocator& allocator);
  // The first request that found no room since the last one that did, if any.
  const std::optional<FailedRequest>& failure() const { return failure_; }

 private:
  void note(const AllocatorEvent& event);
  void note_failure(const Allocator& allocator, int64_t requested_bytes);

  std::unordered_map<const void*, LiveBlock> live_;
  std::optional<FailedRequest> failure_;
  bool names_missing_ = false;  // for the request: names come with the event after the handler's call
};

// Returns the smallest set of blocks, by bytes, without which `bytes` would be contiguous: neighbors, or all
// blocks of a segment whose release would leave the driver with that much beside `room_bytes`. `live` has the
// blocks' users. Returns nullopt if no such blocks open that much.
std::optional<PinningBlock> find_pin(const Snapshot& snapshot, int64_t bytes, int64_t room_bytes,
                                     const std::unordered_map<const void*, LiveBlock>& live);

}  // namespace headroom
