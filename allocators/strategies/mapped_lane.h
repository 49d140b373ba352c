// What one stream has of `mapped`: ranges of addresses with blocks in them, so that none waits for another;
// only pages change hands. Serves what needs no call of the driver and no other lane. Knows no device.
#pragma once

#include <memory>
#include <vector>

#include "allocators/strategies/mapped_pages.h"
#include "allocators/stream_lanes.h"

namespace headroom {

class MappedLane final : public StreamLane {
 public:
  // Blocks up to this size have pages of their own: among large ones they would pin pages that could move.
  static constexpr int64_t kSmallBytes = MappedRange::kSmallestOfFirstFit;

  // `addresses` and `page_bytes` are those of one range. Without a base in `small` or the first of `large`
  // the process had no addresses left.
  MappedLane(VirtualMemory& memory, MappedPages& pages, Stream stream, int64_t addresses, int64_t page_bytes);

  // Where pages are in their place already, or were once under a block of that size while as much was live,
  // and can come back.
  MemoryBlock take(int64_t bytes) override;
  int64_t give_back(void* pointer, int64_t bytes) noexcept override;
  void note_repeat(int64_t) override { ++now; }

  // Whether such a block may lie here.
  bool has(const void* pointer, int64_t bytes);
  // Whether pages were brought under a block of that size before, while as much was live: then the program
  // repeats itself.
  bool is_repeated(const MappedSpace& space, int64_t bytes) const;
  // Notes where the pages of such a request are going to be brought past this. Throws std::bad_alloc.
  void remember(MappedSpace& space, int64_t bytes, int64_t offset);
  // They have been.
  void count_brought(int64_t bytes) { live_bytes_ += bytes; }
  // Takes a block back of which some pages did not come; those that did stay as idle ones.
  void undo(MappedSpace& space, int64_t offset, int64_t bytes) noexcept;

  // Calls visit(space) for each.
  template <typename Visit>
  void for_each_space(const Visit& visit) {
    for (const std::unique_ptr<MappedSpace>& space : large) visit(*space);
    visit(small);
  }

  MappedSpace small;
  std::vector<std::unique_ptr<MappedSpace>> large;  // the one with the largest pages last
  int64_t now = 0;  // counts what is given back here, on from the other lanes' when they were last compared
  int64_t active_at = 0;  // when something was last given back here, as far as was seen at such times

 private:
  MemoryBlock take_in_place(MappedSpace& space, int64_t bytes);
  MemoryBlock bring_back(MappedSpace& space, int64_t bytes);
  MappedSpace* space_with(const void* pointer, int64_t bytes);

  MappedPages& pages_;
  int64_t live_bytes_ = 0;
  std::vector<PageRow> missing_;  // under the block that is being placed
};

}  // namespace headroom
