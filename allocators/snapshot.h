// The memory of an allocator at one moment: segments from the driver and the blocks in them. Knows no
// strategy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocators/statistics.h"
#include "device/stream.h"

namespace headroom {

struct SnapshotBlock {
  enum class State : uint8_t {
    kActive,   // in use
    kPending,  // freed while other streams still use it
    kFree
  };
  void* pointer = nullptr;
  int64_t bytes = 0;
  int64_t requested_bytes = 0;  // rounded to the alignment; 0 for a free one
  State state = State::kFree;
  // The stream of an active block, or the one that freed it; nothing: none, or several.
  std::optional<Stream> stream = {};
  std::string op = {}, tensor = {};  // names of an active block, if known
};

// Blocks are in address order and fill it.
struct SnapshotSegment {
  void* pointer = nullptr;  // null: memory without a known address
  int64_t bytes = 0;
  std::vector<SnapshotBlock> blocks;
};

struct Snapshot {
  Statistics statistics;
  std::vector<SnapshotSegment> segments;  // by address
};

}  // namespace headroom
