// What an allocator looked like when it first found no room: for whom the request was, what was live, and
// what lies between the free pieces. Knows no strategy and no graph.
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
  int64_t bytes = 0;  // as asked for
};

// What keeps free memory apart.
struct PinningBlock {
  LiveBlock block;          // the largest
  int64_t others = 0;       // beside it
  int64_t opens_bytes = 0;  // what would be in one piece without them
};

struct FailedRequest {
  MemoryFacts facts;
  std::vector<LiveBlock> live;  // the largest first
  std::optional<PinningBlock> pin;
};

class FailureWitness {
 public:
  // Becomes the allocator's observer and its handler of out of memory; must outlive the allocator.
  void watch(Allocator& allocator);
  // The first request that found no room; nothing so far.
  const std::optional<FailedRequest>& failure() const { return failure_; }

 private:
  void note(const AllocatorEvent& event);
  void note_failure(const Allocator& allocator, int64_t requested_bytes);

  std::unordered_map<const void*, LiveBlock> live_;
  std::optional<FailedRequest> failure_;
  bool names_missing_ = false;  // of the request: they come right after the handler was asked
};

// The fewest bytes of blocks without which `bytes` would be in one piece: neighbours, or all blocks of a
// segment, which could then go back to a driver that still gives `room_bytes`. `live` says who has a block.
// Nothing where neither opens that much.
std::optional<PinningBlock> find_pin(const Snapshot& snapshot, int64_t bytes, int64_t room_bytes,
                                     const std::unordered_map<const void*, LiveBlock>& live);

}  // namespace headroom
