// Virtual memory against fragmentation: blocks lie side by side in one range of addresses, and physical pages
// are mapped under them; before the device is asked for a new page, an idle one is taken from wherever it
// lies. Nothing is copied. Knows no other strategy.
#pragma once

#include <memory>
#include <vector>

#include "allocators/allocator.h"
#include "allocators/mapped_range.h"
#include "allocators/strategy_options.h"

namespace headroom {

inline constexpr StrategyOption kMappedOptions[] = {
    {"page", "SIZE", "by what is held", "bytes of one physical block, all of which moves at once"},
};

class MappedAllocator final : public Allocator {
 public:
  // Blocks up to this size have pages of their own: among large ones they would pin pages that could move.
  static constexpr int64_t kSmallBytes = MappedRange::kSmallestOfFirstFit;

  // Streams that memory was allocated on must live as long as this, which waits for their work before it
  // unmaps. Pages of `page_bytes`, rounded up to the device's granularity times a power of two; with 0 they
  // begin at the granularity and grow with what is held where they move often. Throws InvalidArgument when
  // the device has no virtual memory.
  MappedAllocator(Device& device, std::string name, std::optional<Limit> limit, int64_t page_bytes = 0);
  ~MappedAllocator() override;

  // Of the first pages, and of all of them when their size was asked for.
  int64_t page_bytes() const { return page_bytes_; }

 private:
  // A range with its addresses, and the physical block of each of its pages; one of no bytes where nothing is
  // mapped.
  struct Space {
    Space(VirtualMemory& memory, int64_t bytes, int64_t page_bytes, MappedRange::Fit fit);
    ~Space();
    Space(const Space&) = delete;
    Space& operator=(const Space&) = delete;

    Block take(int64_t block_bytes);
    bool has(const void* pointer) const;

    VirtualMemory& memory;
    const int64_t page_bytes, bytes;
    char* const base;
    MappedRange range;
    std::vector<PhysicalBlock> pages;
  };

  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;
  int64_t do_trim() noexcept override;
  // No idle page is out of a request's reach.
  bool trimming_makes_room() const override { return false; }
  int64_t largest_free_block() const override;
  void do_snapshot(std::vector<SnapshotSegment>& segments) const override;

  // What one stream allocates lies in ranges of its own, so that none waits for another; only pages change
  // hands.
  class Lane final : public StreamLane {
   public:
    Lane(VirtualMemory& memory, Stream stream, int64_t addresses, int64_t page_bytes);

    Block take(int64_t bytes) override;
    int64_t give_back(void* pointer, int64_t bytes) noexcept override;
    bool has(const void* pointer, int64_t bytes) { return space_with(pointer, bytes) != nullptr; }

    Space small;
    std::vector<std::unique_ptr<Space>> large;  // the one with the largest pages last
    int64_t now = 0;  // counts what is given back here, on from the other lanes' when they were last compared

   private:
    Space* space_with(const void* pointer, int64_t bytes);
  };

  Lane* lane_of(Stream stream);
  template <typename Visit>
  void for_each_space(const Visit& visit) const;
  Block allocate_with_pages(Space& space, int64_t bytes);
  void grow_pages(Lane& lane);
  bool collect_pages(int64_t page_bytes, int64_t count);
  bool create_pages(int64_t page_bytes, int64_t count);
  void release_spare(size_t index) noexcept;
  int64_t spare_pages(int64_t page_bytes) const;
  bool map_pages(Space& space);
  void unmap_idle(Space& space, const MappedRange::IdlePages& idle);
  void undo(Space& space, int64_t offset, int64_t bytes) noexcept;
  Space& with_oldest_idle();
  int64_t idle_bytes() const;
  int64_t movable_bytes() const;
  void compare_clocks() noexcept;
  void wait_for_streams();

  Device& device_;
  VirtualMemory& memory_;
  const int64_t page_bytes_;
  const bool page_may_grow_;
  const int64_t addresses_;  // of one range
  std::vector<Lane*> own_lanes_;
  std::vector<PhysicalBlock> spare_;    // pages mapped nowhere
  std::vector<int64_t> missing_pages_;  // under the block that is being placed
  int64_t now_ = 0;                     // the latest time of all lanes when they were last compared
  int64_t waited_at_ = 0;               // work on what was freed by then is done
  int64_t held_bytes_ = 0;
  int64_t moved_bytes_ = 0;  // since pages last grew
};

}  // namespace headroom
