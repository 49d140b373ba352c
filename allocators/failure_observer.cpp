#include "allocators/failure_observer.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <tuple>

namespace headroom {
namespace {

using State = SnapshotBlock::State;

// Blocks that have to go, and the contiguous memory that opens.
struct Opening {
  int64_t cost_bytes = std::numeric_limits<int64_t>::max();
  int64_t opens_bytes = 0;
  int64_t blocks = 0;
  const SnapshotBlock* largest = nullptr;
};

// The fewest bytes so far.
class BestOpening {
 public:
  BestOpening(const Snapshot& snapshot, int64_t bytes, int64_t room_bytes) : bytes_(bytes) {
    for (const SnapshotSegment& segment : snapshot.segments) {
      if (segment.pointer == nullptr) continue;
      consider_neighbors(segment.blocks);
      consider_segment(segment.blocks, room_bytes);
    }
  }
  const Opening& best() const { return best_; }

 private:
  void consider(const Opening& opening) {
    if (opening.blocks == 0 || opening.opens_bytes < bytes_) return;
    if (opening.cost_bytes < best_.cost_bytes) best_ = opening;
  }

  // A window of neighbors from each block on, whose two ends only move forward: O(n).
  void consider_neighbors(const std::vector<SnapshotBlock>& blocks) {
    if (bytes_ <= 0) return;
    Opening window{0};
    std::deque<const SnapshotBlock*> largest;  // each is the largest live block from the one before it on
    size_t end = 0;
    for (size_t first = 0; first < blocks.size(); ++first) {
      for (; end < blocks.size() && window.opens_bytes < bytes_; ++end) {
        const SnapshotBlock& block = blocks[end];
        window.opens_bytes += block.bytes;
        if (block.state == State::kFree) continue;
        window.cost_bytes += block.bytes;
        ++window.blocks;
        while (!largest.empty() && largest.back()->bytes < block.bytes) largest.pop_back();
        largest.push_back(&block);
      }
      if (window.opens_bytes < bytes_) return;
      window.largest = largest.empty() ? nullptr : largest.front();
      consider(window);
      const SnapshotBlock& gone = blocks[first];
      window.opens_bytes -= gone.bytes;
      if (gone.state == State::kFree) continue;
      window.cost_bytes -= gone.bytes;
      --window.blocks;
      if (largest.front() == &gone) largest.pop_front();
    }
  }

  // A whole segment, released to a driver that still has `room_bytes`.
  void consider_segment(const std::vector<SnapshotBlock>& blocks, int64_t room_bytes) {
    Opening all{0, room_bytes};
    for (const SnapshotBlock& block : blocks) {
      all.opens_bytes += block.bytes;
      if (block.state == State::kFree) continue;
      all.cost_bytes += block.bytes;
      ++all.blocks;
      if (all.largest == nullptr || block.bytes > all.largest->bytes) all.largest = &block;
    }
    consider(all);
  }

  const int64_t bytes_;
  Opening best_;
};

}  // namespace

std::optional<PinningBlock> find_pin(const Snapshot& snapshot, int64_t bytes, int64_t room_bytes,
                                     const std::unordered_map<const void*, LiveBlock>& live) {
  const Opening best = BestOpening(snapshot, bytes, room_bytes).best();
  if (best.largest == nullptr) return std::nullopt;
  PinningBlock pin{{}, best.blocks - 1, best.opens_bytes};
  const auto found = live.find(best.largest->pointer);
  if (found != live.end()) pin.block = found->second;
  pin.block.bytes = best.largest->requested_bytes > 0 ? best.largest->requested_bytes : best.largest->bytes;
  return pin;
}

void FailureObserver::watch(Allocator& allocator) {
  allocator.set_observer([this](const AllocatorEvent& event) { note(event); });
  allocator.set_out_of_memory_handler([this, &allocator](int64_t requested_bytes, int) {
    note_failure(allocator, requested_bytes);
    return false;
  });
}

void FailureObserver::note(const AllocatorEvent& event) {
  const MemoryUser& user = event.user;
  if (event.kind == AllocatorEvent::Kind::kOutOfMemory && names_missing_) {
    MemoryFacts& facts = failure_->facts;
    facts.op = user.op;
    facts.tensor = user.tensor;
    facts.source = user.source;
    names_missing_ = false;
  }
  if (event.kind == AllocatorEvent::Kind::kAllocate) {
    failure_.reset();  // the program went on
    live_[event.pointer] = {std::string(user.op), std::string(user.tensor), std::string(user.source),
                            user.category, event.requested_bytes};
  } else if (event.kind == AllocatorEvent::Kind::kDeallocate) {
    live_.erase(event.pointer);
  }
}

void FailureObserver::note_failure(const Allocator& allocator, int64_t requested_bytes) {
  if (failure_) return;
  failure_.emplace();
  failure_->facts = allocator.facts(requested_bytes);
  names_missing_ = true;
  for (const auto& [pointer, block] : live_) failure_->live.push_back(block);
  std::ranges::sort(failure_->live, [](const LiveBlock& a, const LiveBlock& b) {
    return std::tie(b.bytes, a.tensor, a.op) < std::tie(a.bytes, b.tensor, b.op);
  });
  const MemoryFacts& facts = failure_->facts;
  const int64_t room = std::min(facts.device_free, facts.limit_room.value_or(facts.device_free));
  failure_->pin = find_pin(allocator.snapshot(), requested_bytes, room, live_);
}

}  // namespace headroom
