#include "allocators/failure_witness.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace headroom {
namespace {

using State = SnapshotBlock::State;

// What has to go for a piece to open.
struct Opening {
  int64_t cost_bytes = std::numeric_limits<int64_t>::max();
  int64_t opens_bytes = 0;
  int64_t blocks = 0;
  const SnapshotBlock* largest = nullptr;
};

void add(Opening& opening, const SnapshotBlock& block) {
  opening.opens_bytes += block.bytes;
  if (block.state == State::kFree) return;
  opening.cost_bytes += block.bytes;
  ++opening.blocks;
  if (opening.largest == nullptr || block.bytes > opening.largest->bytes) opening.largest = &block;
}

// The neighbours from block `first` on that are `bytes` together.
Opening open_from(const SnapshotSegment& segment, size_t first, int64_t bytes) {
  Opening opening{0};
  for (size_t i = first; i < segment.blocks.size() && opening.opens_bytes < bytes; ++i) {
    add(opening, segment.blocks[i]);
  }
  return opening;
}

// All of a segment, which then goes back.
Opening open_segment(const SnapshotSegment& segment, int64_t device_free_bytes) {
  Opening opening{0};
  for (const SnapshotBlock& block : segment.blocks) add(opening, block);
  opening.opens_bytes += device_free_bytes;
  return opening;
}

}  // namespace

std::optional<PinningBlock> find_pin(const Snapshot& snapshot, int64_t bytes, int64_t device_free_bytes,
                                     const std::unordered_map<const void*, LiveBlock>& live) {
  Opening best;
  const auto consider = [&](const Opening& opening) {
    if (opening.largest == nullptr || opening.opens_bytes < bytes) return;
    if (opening.cost_bytes < best.cost_bytes) best = opening;
  };
  for (const SnapshotSegment& segment : snapshot.segments) {
    if (segment.pointer == nullptr) continue;
    for (size_t i = 0; i < segment.blocks.size(); ++i) {
      consider(open_from(segment, i, bytes));
    }
    consider(open_segment(segment, device_free_bytes));
  }
  if (best.largest == nullptr) return std::nullopt;
  PinningBlock pin{{}, best.blocks - 1, best.opens_bytes};
  const auto found = live.find(best.largest->pointer);
  if (found != live.end()) pin.block = found->second;
  pin.block.bytes = best.largest->requested_bytes > 0 ? best.largest->requested_bytes : best.largest->bytes;
  return pin;
}

void FailureWitness::watch(Allocator& allocator) {
  allocator.set_observer([this](const AllocatorEvent& event) { note(event); });
  allocator.set_out_of_memory_handler([this, &allocator](int64_t requested_bytes, int) {
    note_failure(allocator, requested_bytes);
    return false;
  });
}

void FailureWitness::note(const AllocatorEvent& event) {
  const MemoryUser& user = event.user;
  if (event.kind == AllocatorEvent::Kind::kOutOfMemory && names_missing_) {
    MemoryFacts& facts = failure_->facts;
    facts.op = user.op;
    facts.tensor = user.tensor;
    facts.source = user.source;
    names_missing_ = false;
  }
  if (failure_) return;
  if (event.kind == AllocatorEvent::Kind::kAllocate) {
    live_[event.pointer] = {std::string(user.op), std::string(user.tensor), std::string(user.source),
                            user.category, event.requested_bytes};
  } else if (event.kind == AllocatorEvent::Kind::kDeallocate) {
    live_.erase(event.pointer);
  }
}

void FailureWitness::note_failure(const Allocator& allocator, int64_t requested_bytes) {
  if (failure_) return;
  failure_.emplace();
  failure_->facts = allocator.facts(requested_bytes);
  names_missing_ = true;
  for (const auto& [pointer, block] : live_) failure_->live.push_back(block);
  std::sort(failure_->live.begin(), failure_->live.end(), [](const LiveBlock& a, const LiveBlock& b) {
    return std::tie(b.bytes, a.tensor, a.op) < std::tie(a.bytes, b.tensor, b.op);
  });
  const MemoryFacts& facts = failure_->facts;
  const int64_t room = std::min(facts.device_free, facts.limit_room.value_or(facts.device_free));
  failure_->pin = find_pin(allocator.snapshot(), requested_bytes, room, live_);
}

}  // namespace headroom
