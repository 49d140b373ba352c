// Facts about an allocator: statistics, snapshots and the facts of its errors.
#include <algorithm>
#include <functional>
#include <unordered_map>

#include "allocators/allocator.h"

namespace headroom {

Statistics Allocator::statistics() const {
  const Lock lock(*this);
  return statistics_now();
}

void Allocator::reset_peaks() noexcept {
  const Lock lock(*this);
  statistics_.reserved.current = reserved_now();
  for (Gauge* gauge :
       {&statistics_.requested, &statistics_.allocated, &statistics_.active, &statistics_.reserved}) {
    gauge->peak = gauge->current;
  }
}

Snapshot Allocator::snapshot() const {
  const Lock lock(*this);
  Snapshot result{statistics_now(), {}};
  do_snapshot(result.segments);
  std::ranges::sort(result.segments,
                    [](const auto& a, const auto& b) { return std::less<>()(a.pointer, b.pointer); });
  std::unordered_map<const void*, SnapshotBlock::State> states;
  for (const PendingBlocks::Pending& pending : pending_.pending()) {
    states[pending.pointer] = SnapshotBlock::State::kPending;
  }
  for (const CacheLane* lane : cache_lanes_) {
    lane->for_each_kept([&](const void* pointer, int64_t) { states[pointer] = SnapshotBlock::State::kFree; });
  }
  for (SnapshotSegment& segment : result.segments) {
    for (SnapshotBlock& block : segment.blocks) {
      const auto state = states.find(block.pointer);
      if (state == states.end() || block.state == SnapshotBlock::State::kFree) continue;
      block.state = state->second;
      if (block.state == SnapshotBlock::State::kFree) block.requested_bytes = 0;
    }
  }
  return result;
}

// Locked.
Statistics Allocator::statistics_now() const {
  Statistics result = statistics_;
  result.largest_free_block = largest_free_block();
  result.reserved.current = reserved_now();
  return result;
}

MemoryFacts Allocator::facts(int64_t requested_bytes) const {
  const Lock lock(*this);
  return facts_now(requested_bytes);
}

OutOfMemory Allocator::out_of_memory(int64_t requested_bytes) const {
  return OutOfMemory(facts_now(requested_bytes));
}

// Locked, unless a constructor calls it.
MemoryFacts Allocator::facts_now(int64_t requested_bytes) const {
  const MemoryInfo info = device_.memory().info();
  MemoryFacts facts;
  facts.requested = requested_bytes;
  facts.allocated = statistics_.allocated.current;
  facts.asked = statistics_.requested.current;
  facts.reserved = reserved_now();
  facts.largest_free_block = largest_free_block();
  facts.device_free = info.free;
  facts.device_total = info.total;
  facts.others = info.others;
  facts.limit = limit_bytes();
  if (limit_) {
    facts.limit_is_reserve = limit_->is_reserve;
    facts.limit_is_on_process = limit_->scope == LimitScope::kProcess;
    facts.limit_room = std::max<int64_t>(0, reservable_bytes());
  }
  facts.strategy = name_;
  facts.device = device_name_;
  return facts;
}

}  // namespace headroom
