// Virtual memory against fragmentation: maps physical pages under blocks, idle pages from elsewhere before
// new ones. Copies nothing.
#pragma once

#include <span>
#include <vector>

#include "allocators/allocator.h"
#include "allocators/strategies/mapped_lane.h"
#include "allocators/strategies/mapped_lanes.h"
#include "allocators/strategies/mapped_pages.h"
#include "allocators/strategies/strategy_options.h"

namespace headroom {

inline constexpr StrategyOption kMappedOptions[] = {
    {"page", "SIZE", "grows with what is held", "size of a physical page"},
};

class MappedAllocator final : public Allocator {
 public:
  // Streams must outlive this, which waits for their work before it unmaps pages. `page_bytes` is rounded up
  // to the device's granularity times a power of two; with 0, pages start at the granularity and, if they
  // move often, grow with the reserved memory. Throws InvalidArgument if the device has no virtual memory.
  MappedAllocator(Device& device, std::string name, std::optional<Limit> limit, int64_t page_bytes = 0);
  ~MappedAllocator() override;

  // The size of the first pages, and of all pages if it was given.
  int64_t page_bytes() const { return page_bytes_; }

 private:
  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;
  int64_t do_trim() noexcept override;
  // Every request can use every idle page.
  bool trimming_makes_room() const override { return false; }
  int64_t largest_free_block() const override;
  void do_snapshot(std::vector<SnapshotSegment>& segments) const override;

  // The idle pages that a request may use.
  enum class Reach : uint8_t {
    kLane,  // those of its lane and of lanes that have been quiet for long
    kAll
  };

  MappedLane* lane_of(Stream stream);
  Block allocate_with_pages(MappedLane& lane, int64_t bytes, Reach reach);
  Block allocate_with_pages(MappedLane& lane, MappedSpace& space, int64_t bytes, Reach reach);
  void grow_pages(MappedLane& lane);
  void look_for_idle(MappedLane& lane, Reach reach);
  void note_idle(MappedPages::Index page);
  MappingCalls calls_to_bring(MappedSpace& space, int64_t spread, int32_t calls_in_place_of_another);
  bool can_create(int64_t bytes) const;
  bool is_idle(MappedPages::Index page) const { return is_idle_[static_cast<size_t>(page)]; }
  void no_longer_idle(MappedPages::Index page) { is_idle_[static_cast<size_t>(page)] = false; }
  void return_pages(MappedSpace& space);
  bool collect_pages(MappedSpace& space, int64_t count);
  bool create_pages(int64_t page_bytes, int64_t count);
  bool settle_pages(MappedSpace& space, bool for_good);
  void take_over(MappedSpace& from, const MappedSpace& to);
  MappedSpace& with_oldest_idle();
  int64_t spare_pages(int64_t page_bytes) const;
  int64_t movable_bytes(std::span<MappedLane* const> lanes) const;
  void wait_for_streams();

  Device& device_;
  VirtualMemory& memory_;
  const int64_t page_bytes_;
  const bool page_may_grow_;
  const int64_t addresses_;  // bytes of one range
  MappedPages pages_;
  MappedLanes lanes_;
  // State of the current request:
  std::vector<MappedLane*> within_reach_;  // except lanes without idle pages
  bool is_all_within_reach_ = false;
  std::vector<MappedPages::Index> idle_;  // pages within reach, idle when it began
  std::vector<bool> is_idle_;             // by page, whether it still is
  std::vector<Stream> followed_;          // its stream waits for these
  CountedBits free_;                      // as in MappingCalls
  std::vector<PageRow> free_rows_;
  std::vector<PageRow> missing_rows_;  // under the block
  std::vector<int64_t> missing_pages_;
  std::vector<MappedPages::Index> settling_;  // under the missing pages
  int64_t waited_at_ = 0;                     // work on blocks freed by then is done
  int requests_settled_ = 0;                  // requests that moved pages since one took a new page
  int64_t moved_bytes_ = 0;                   // by driver calls, since pages last grew
};

}  // namespace headroom
