// What one stream gave back and may soon ask for again, kept by size in front of any strategy, which takes it
// for still in use. Knows no strategy.
#pragma once

#include <cstdint>
#include <vector>

#include "allocators/blocks/offset_table.h"
#include "allocators/stream_lanes.h"

namespace headroom {

class CacheLane final : public StreamLane {
 public:
  // Keeps blocks of `most_bytes` in all, at most.
  CacheLane(Stream stream, int64_t most_bytes);

  // Notes a block that the strategy handed out for a request of `bytes`. Throws std::bad_alloc, and has then
  // changed nothing.
  void adopt(const MemoryBlock& block, int64_t bytes);
  // Forgets a block that goes back to the strategy; false when no such one is in use.
  bool forget(const void* pointer, int64_t bytes) noexcept;
  // Calls visit(pointer, bytes asked of the strategy) for what is kept.
  template <typename Visit>
  void for_each_kept(const Visit& visit) const {
    for (const int32_t first : first_kept_) {
      for (int32_t at = first; at != kNone; at = record(at).next) visit(record(at).pointer, record(at).bytes);
    }
  }
  // Forgets all that is kept.
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

  const int64_t most_bytes_;
  int64_t kept_bytes_ = 0;
  std::vector<Record> records_;
  int32_t unused_ = kNone;
  OffsetTable in_use_;               // record by address
  OffsetTable sizes_;                // position in first_kept_ by bytes
  std::vector<int32_t> first_kept_;  // the block given back last of each size
};

}  // namespace headroom
