// Events that an allocator reports to observers, and the names that its callers give to their memory. Knows
// no strategy.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/memory_category.h"
#include "device/stream.h"

namespace headroom {

class Allocator;
struct MemoryInfo;

// The user and purpose of memory: the names of a node and a value, and the line of code that made the node.
struct MemoryUser {
  std::string_view op, tensor, source = {};
  MemoryCategory category = MemoryCategory::kOther;
};

struct AllocatorEvent {
  enum class Kind : uint8_t {
    kAllocate,
    kDeallocate,
    kOutOfMemory,
    kRetry,      // the next allocation found room only after memory had come back
    kReserve,    // from the driver; `pointer` is null where the strategy maps pages or has a pool below it
    kUnreserve,  // back to the driver
    kDevice,     // memory of the device, as the driver reports it
    kPart,       // part of the block allocated last, see observe_part
  };
  Kind kind;
  void* pointer;            // null when there was no room
  int64_t requested_bytes;  // size that the caller requested; for driver calls, the bytes added or removed
  Stream stream;
  MemoryUser user = {};                // user of an allocation or a part
  int64_t block_bytes = 0;             // for an allocation: bytes that the strategy used for it
  const MemoryInfo* memory = nullptr;  // for kDevice
  int64_t first = 0, end = 0;          // for kPart
};

// Tells the allocator's observer, if there is one, that `bytes` at `pointer`, inside the block allocated
// last, belong to `user` during [first, end): positions in a pass that repeats over the block.
void observe_part(Allocator& allocator, void* pointer, int64_t bytes, int64_t first, int64_t end,
                  const MemoryUser& user);

}  // namespace headroom
