// A static plan as a strategy: a run that repeats a trace gets its memory at offsets planned in advance, in
// one arena.
#pragma once

#include <memory>
#include <memory_resource>
#include <vector>

#include "allocators/packing/pack.h"
#include "allocators/strategies/segment_allocator.h"
#include "allocators/strategies/strategy_options.h"
#include "trace/trace.h"

namespace headroom {

inline constexpr StrategyOption kPackedOptions[] = {
    {"trace", "PATH", "none", "trace of the run to repeat"},
    {"work", "COUNT", "256", "effort of the search for offsets, in millions of blocks visited"},
};

// The places of a run's requests, in order.
struct RequestPlan {
  struct Place {
    int64_t bytes, offset_bytes;  // multiples of Allocator::kAlignment
  };
  std::vector<Place> places;
  int64_t arena_bytes = 0;
};

// Throws InvalidArgument for a trace of several streams, whose order is not known.
RequestPlan plan_requests(const Trace& trace, const PackOptions& options = {});

class PackedAllocator final : public SegmentAllocator {
 public:
  // Takes the arena at once. Throws OutOfMemory when the device has no room for it.
  PackedAllocator(Device& device, std::string name, std::optional<Limit> limit,
                  std::shared_ptr<const RequestPlan> plan);
  ~PackedAllocator() override;

 private:
  struct Live {
    int64_t bytes;
    int32_t user;
  };
  using LiveBlocks = std::pmr::map<int64_t, Live>;  // by offset

  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;
  int64_t do_trim() noexcept override;
  int64_t largest_free_block() const override;
  void do_snapshot(std::vector<SnapshotSegment>& segments) const override;

  // The place of the next planned request, if this is that request and the place is free.
  Block take_planned(int64_t bytes, Stream stream);
  Block take_beside(int64_t bytes, Stream stream);
  // The first live block of the arena that ends after the offset.
  LiveBlocks::iterator live_from(int64_t offset_bytes);
  // Calls visit(offset, bytes, live) for each piece of the arena by address; `live` is null for free ones.
  template <typename Visit>
  void for_each_piece(Visit visit) const;

  const std::shared_ptr<const RequestPlan> plan_;
  std::byte* arena_ = nullptr;
  size_t next_ = 0;  // index of the next planned request
  std::pmr::unsynchronized_pool_resource nodes_;
  LiveBlocks live_{&nodes_};  // in the arena
  UserSets users_;
  int32_t last_user_ = BlockStore::kNobody;
  BlockStore& beside_ = new_store();  // for requests that differ from the plan
};

}  // namespace headroom
