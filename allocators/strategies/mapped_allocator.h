// Virtual memory against fragmentation: blocks lie side by side in one range of addresses, and physical pages
// are mapped under them; before the device is asked for a new page, an idle one is taken from wherever it
// lies. Nothing is copied. Knows no other strategy.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "allocators/allocator.h"
#include "allocators/strategies/mapped_lane.h"
#include "allocators/strategies/mapped_pages.h"
#include "allocators/strategies/strategy_options.h"

namespace headroom {

inline constexpr StrategyOption kMappedOptions[] = {
    {"page", "SIZE", "by what is held", "bytes of one physical block, all of which moves at once"},
};

class MappedAllocator final : public Allocator {
 public:
  // Streams that memory was allocated on must live as long as this, which waits for their work before it
  // unmaps. Pages of `page_bytes`, rounded up to the device's granularity times a power of two; with 0 they
  // begin at the granularity and grow with what is held where they move often. Throws InvalidArgument when
  // the device has no virtual memory.
  MappedAllocator(Device& device, std::string name, std::optional<Limit> limit, int64_t page_bytes = 0);
  ~MappedAllocator() override;

  // Of the first pages, and of all of them when their size was asked for.
  int64_t page_bytes() const { return page_bytes_; }

 private:
  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;
  int64_t do_trim() noexcept override;
  // No idle page is out of a request's reach.
  bool trimming_makes_room() const override { return false; }
  int64_t largest_free_block() const override;
  void do_snapshot(std::vector<SnapshotSegment>& segments) const override;

  // Whose idle pages may be taken.
  enum class Reach : uint8_t {
    kLane,  // the lane's own, and those of lanes that have been quiet for long
    kAll
  };

  MappedLane* lane_of(Stream stream);
  Block allocate_with_pages(MappedLane& lane, int64_t bytes, Reach reach);
  Block allocate_with_pages(MappedLane& lane, MappedSpace& space, int64_t bytes, Reach reach);
  void grow_pages(MappedLane& lane);
  void look_for_idle(const MappedLane& lane, Reach reach, int32_t calls_in_place_of_another);
  void forget_idle();
  MappingCalls calls_to_bring(const MappedSpace& space, int64_t spread);
  bool can_create(int64_t bytes) const;
  // What it takes to map a page, which may be none, where it is mapped already; nothing if it is idle
  // elsewhere.
  int32_t& calls_for(MappedPages::Index page) { return calls_for_[static_cast<size_t>(page + 1)]; }
  bool is_idle(MappedPages::Index page) { return any_idle_ && calls_for(page) == 0; }
  void no_longer_idle(MappedPages::Index page) {
    if (any_idle_) calls_for(page) = calls_in_place_of_another_;
  }
  void return_pages(MappedSpace& space);
  bool collect_pages(MappedSpace& space, int64_t count);
  bool create_pages(int64_t page_bytes, int64_t count);
  bool settle_pages(MappedSpace& space, bool for_good);
  void take_over(MappedSpace& from, const MappedSpace& to);
  MappedSpace& with_oldest_idle();
  int64_t spare_pages(int64_t page_bytes) const;
  int64_t movable_bytes(std::span<MappedLane* const> lanes) const;
  void compare_clocks() noexcept;
  void wait_for_streams();

  Device& device_;
  VirtualMemory& memory_;
  const int64_t page_bytes_;
  const bool page_may_grow_;
  const int64_t addresses_;  // of one range
  MappedPages pages_;
  std::vector<MappedLane*> own_lanes_;
  // Of the request that is being served:
  std::vector<MappedLane*> within_reach_;
  int32_t calls_in_place_of_another_ = 0;
  bool any_idle_ = false;              // page within reach
  std::vector<int32_t> calls_for_;     // by page, of those within reach
  std::vector<Stream> followed_;       // after which its stream begins
  std::vector<int32_t> calls_before_;  // as in MappingCalls
  std::vector<PageRow> free_rows_;
  std::vector<PageRow> missing_rows_;  // under the block that is being placed
  std::vector<int64_t> missing_pages_;
  int64_t now_ = 0;           // the latest time of all lanes when they were last compared
  int64_t waited_at_ = 0;     // work on what was freed by then is done
  int requests_settled_ = 0;  // that took pages since one took a new one
  int64_t moved_bytes_ = 0;   // by calls of the driver, since pages last grew
};

}  // namespace headroom
