// A cache of one stream's freed blocks by exact size, in front of any strategy, which considers them in use.
// Knows no strategy.
#pragma once

#include <cstdint>
#include <vector>

#include "allocators/stream_lanes.h"
#include "base/offset_table.h"

namespace headroom {

class CacheLane final : public StreamLane {
 public:
  // Keeps at most `max_bytes`.
  CacheLane(Stream stream, int64_t max_bytes);

  // Adds a block that the strategy handed out for `bytes`. Strong guarantee: on std::bad_alloc nothing
  // changes.
  void adopt(const MemoryBlock& block, int64_t bytes);
  // Removes a block that returns to the strategy; false if there is none.
  bool forget(const void* pointer, int64_t bytes) noexcept;
  // Calls visit(pointer, requested bytes) for each kept block.
  template <typename Visit>
  void for_each_kept(const Visit& visit) const {
    for (const int32_t first : first_kept_) {
      for (int32_t at = first; at != kNone; at = record(at).next) visit(record(at).pointer, record(at).bytes);
    }
  }
  // Removes all kept blocks.
  void clear() noexcept;

 private:
  static constexpr int32_t kNone = OffsetTable::kNone;
  struct Record {
    void* pointer = nullptr;
    int64_t bytes = 0, block_bytes = 0;
    int32_t size = kNone;  // position in first_kept_
    int32_t next = kNone;
  };

  MemoryBlock take(int64_t bytes) override;
  int64_t give_back(void* pointer, int64_t bytes) noexcept override;
  int32_t in_use(const void* pointer, int64_t bytes) const noexcept;
  void recycle(int32_t at) noexcept;
  Record& record(int32_t at) { return records_[static_cast<size_t>(at)]; }
  const Record& record(int32_t at) const { return records_[static_cast<size_t>(at)]; }

  const int64_t max_bytes_;
  int64_t kept_bytes_ = 0;
  std::vector<Record> records_;
  int32_t unused_ = kNone;
  OffsetTable in_use_;               // record by address
  OffsetTable sizes_;                // position in first_kept_ by bytes
  std::vector<int32_t> first_kept_;  // the block freed last of each size
};

}  // namespace headroom
