// What an allocator holds at one moment, piece by piece: segments from the driver and the blocks in them.
// Knows no strategy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocators/statistics.h"
#include "runtime/device/stream.h"

namespace headroom {

struct SnapshotBlock {
  enum class State : uint8_t {
    kActive,   // someone has it
    kPending,  // given back while other streams still used it
    kFree
  };
  void* pointer = nullptr;
  int64_t bytes = 0;
  int64_t requested_bytes = 0;  // as far as is known: rounded to the alignment; 0 of a free one
  State state = State::kFree;
  // It was allocated for, or of a free one came back on; nothing: none, or several.
  std::optional<Stream> stream = {};
  std::string op = {}, tensor = {};  // who has it, where that is known
};

// Blocks lie one behind the other and fill it.
struct SnapshotSegment {
  void* pointer = nullptr;  // null: memory that has no addresses at the moment, or none that are known
  int64_t bytes = 0;
  std::vector<SnapshotBlock> blocks;
};

struct Snapshot {
  Statistics statistics;
  std::vector<SnapshotSegment> segments;  // by address
};

}  // namespace headroom
