// What an allocator tells those who watch it: events, and the names that its callers give to their memory.
// Knows no strategy.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/memory_category.h"
#include "device/stream.h"

namespace headroom {

class Allocator;
struct MemoryInfo;

// Who asks for memory and what for: the names of a node and a value, and the line of code that made the node.
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
    kDevice,     // what the driver says of the device
    kPart,       // what lies in the block allocated last, see observe_part
  };
  Kind kind;
  void* pointer;            // null when there was no room
  int64_t requested_bytes;  // what the caller asked for; of driver calls the bytes that came or went
  Stream stream;
  MemoryUser user = {};                // of an allocation or a part
  int64_t block_bytes = 0;             // of an allocation: what the strategy took for it
  const MemoryInfo* memory = nullptr;  // of kDevice
  int64_t first = 0, end = 0;          // of kPart
};

// Tells the allocator's observer, if there is one, that `bytes` at `pointer`, inside the block allocated
// last, belong to `user` during [first, end): positions in a pass that is made through the block again and
// again.
void observe_part(Allocator& allocator, void* pointer, int64_t bytes, int64_t first, int64_t end,
                  const MemoryUser& user);

}  // namespace headroom
