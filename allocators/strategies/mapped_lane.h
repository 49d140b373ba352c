// One stream's part of `mapped`: address ranges of its own, so that streams do not wait for each other; only
// pages move between lanes. Serves requests that need no driver call and no other lane. Knows no device.
#pragma once

#include <algorithm>
#include <list>
#include <memory>
#include <vector>

#include "allocators/strategies/mapped_pages.h"
#include "allocators/stream_lanes.h"

namespace headroom {

class MappedLanes;

class MappedLane final : public StreamLane {
 public:
  // Blocks up to this size have a range of their own, because they would pin pages among large blocks.
  static constexpr int64_t kSmallBytes = MappedRange::kSmallestOfFirstFit;

  // `addresses` and `page_bytes` are those of one range. If `small` or the first of `large` has no base, the
  // process has no addresses left. `lanes` must outlive this.
  MappedLane(MappedLanes& lanes, VirtualMemory& memory, MappedPages& pages, Stream stream, int64_t addresses,
             int64_t page_bytes);

  // Succeeds where pages are in place, or where pages that were under such a block before can return.
  MemoryBlock take(int64_t bytes) override;
  int64_t give_back(void* pointer, int64_t bytes) noexcept override;
  void note_repeat(int64_t) override { tick(); }
  void note_calls() noexcept override;

  // Returns true if pages were moved under a block of that size before while as much was live: the program
  // repeats.
  bool is_repeated(const MappedSpace& space, int64_t bytes) const;
  // Remembers the pages that the allocator moves for such a request. Throws std::bad_alloc.
  void remember(MappedSpace& space, int64_t bytes, int64_t offset);
  // The pages were moved.
  void count_brought(int64_t bytes) { live_bytes_ += bytes; }
  // Frees a block some of whose pages could not be moved; the others stay as idle pages.
  void undo(MappedSpace& space, int64_t offset, int64_t bytes) noexcept;

  // Calls visit(space) for each.
  template <typename Visit>
  void for_each_space(const Visit& visit) {
    for (const std::unique_ptr<MappedSpace>& space : large) visit(*space);
    visit(small);
  }

  MappedSpace small;
  std::vector<std::unique_ptr<MappedSpace>> large;  // by page size

  // Counts frees, from the latest time of all lanes when they were last compared.
  int64_t now() const { return std::max(own_time_, time_of_all_); }
  // The time of the last free here.
  int64_t own_time() const { return own_time_; }

  // For MappedLanes.
  struct Activity {
    enum State : uint8_t {
      kActive,
      kQuiet,  // for long, with idle pages perhaps
      kEmpty   // the same, without
    };
    State state = kActive;
    int32_t number = 0;           // its stream's
    bool is_noted = false;        // since lanes were last compared
    bool is_freed_since = false;  // blocks were freed since streams were last waited for
    int64_t freed_at = 0;         // the last free here, as seen when lanes were compared
    std::list<MappedLane*>::iterator place;
  };
  Activity activity;

 private:
  int64_t tick() { return own_time_ = now() + 1; }
  MemoryBlock take_in_place(MappedSpace& space, int64_t bytes);
  MemoryBlock bring_back(MappedSpace& space, int64_t bytes);
  MappedSpace* space_with(const void* pointer, int64_t bytes);

  MappedLanes& lanes_;
  const int64_t& time_of_all_;
  int64_t own_time_ = 0;
  MappedPages& pages_;
  int64_t live_bytes_ = 0;
  std::vector<PageRow> missing_;  // under the current block
};

}  // namespace headroom
