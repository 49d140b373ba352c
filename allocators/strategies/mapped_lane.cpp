#include "allocators/strategies/mapped_lane.h"

#include <new>

#include "allocators/strategies/mapped_lanes.h"
#include "base/bytes.h"

namespace headroom {
namespace {

constexpr size_t kMaxPlaces = 4096;  // remembered per space

// A program that repeats asks for the same size when as much is live.
uint64_t request_of(int64_t bytes, int64_t live_bytes) {
  return static_cast<uint64_t>(bytes / SizeBins::kUnit) * 0x9E3779B97F4A7C15u +
         static_cast<uint64_t>(live_bytes / SizeBins::kUnit);
}

}  // namespace

MappedLane::MappedLane(MappedLanes& lanes, VirtualMemory& memory, MappedPages& pages, Stream stream,
                       int64_t addresses, int64_t page_bytes)
    : StreamLane(stream),
      small(memory, stream, addresses, page_bytes, MappedRange::Fit::kBest),
      lanes_(lanes),
      time_of_all_(lanes.now()),
      pages_(pages) {
  large.push_back(
      std::make_unique<MappedSpace>(memory, stream, addresses, page_bytes, MappedRange::Fit::kFirst));
}

MemoryBlock MappedLane::take(int64_t bytes) {
  const int64_t rounded = round_up(bytes, SizeBins::kUnit);
  MemoryBlock block;
  if (rounded <= kSmallBytes) {
    block = take_in_place(small, rounded);
    if (block.pointer == nullptr) block = bring_back(small, rounded);
  } else {
    for (size_t i = large.size(); i > 0 && block.pointer == nullptr; --i) {
      block = take_in_place(*large[i - 1], rounded);
    }
    for (size_t i = large.size(); i > 0 && block.pointer == nullptr; --i) {
      block = bring_back(*large[i - 1], rounded);
    }
  }
  live_bytes_ += block.bytes;
  return block;
}

inline MemoryBlock MappedLane::take_in_place(MappedSpace& space, int64_t bytes) {
  const int64_t offset = space.range.take(bytes);
  return offset < 0 ? MemoryBlock{} : MemoryBlock{space.base + offset, bytes};
}

MemoryBlock MappedLane::bring_back(MappedSpace& space, int64_t bytes) {
  const auto before = space.places.find(request_of(bytes, live_bytes_));
  if (before == space.places.end()) return {};
  const int64_t offset = before->second;
  missing_.clear();
  const MappedRange::Place place = space.range.place_at(offset, bytes, missing_);
  const auto can_come = [&](const PageRow& row) { return pages_.can_come_back(space, row); };
  if (place.offset < 0 || !std::ranges::all_of(missing_, can_come)) return {};
  missing_.clear();
  space.range.occupy(place, bytes, missing_);
  bool done = true;
  try {
    for (const PageRow& row : missing_) done = done && pages_.bring_back(space, row, now());
  } catch (...) {
    undo(space, offset, bytes);
    throw;
  }
  if (!done) undo(space, offset, bytes);
  return done ? MemoryBlock{space.base + offset, bytes} : MemoryBlock{};
}

int64_t MappedLane::give_back(void* pointer, int64_t bytes) noexcept {
  MappedSpace* space = space_with(pointer, bytes);
  if (space == nullptr) return 0;
  const int64_t rounded = round_up(bytes, SizeBins::kUnit);
  const int64_t offset = static_cast<char*>(pointer) - space->base;
  const MappedRange::Index piece = space->range.give_back(offset, rounded, tick());
  if (piece == MappedRange::kNone) return 0;
  live_bytes_ -= rounded;
  if (space->lent == 0) return rounded;
  try {
    pages_.send_home(*space, space->range.idle_under(piece, offset, rounded), now());
  } catch (const std::bad_alloc&) {  // they stay where they are
  }
  return rounded;
}

inline MappedSpace* MappedLane::space_with(const void* pointer, int64_t bytes) {
  if (round_up(bytes, SizeBins::kUnit) <= kSmallBytes) return small.has(pointer) ? &small : nullptr;
  for (const std::unique_ptr<MappedSpace>& space : large) {
    if (space->has(pointer)) return space.get();
  }
  return nullptr;
}

void MappedLane::note_calls() noexcept {
  lanes_.note(*this);
}

bool MappedLane::is_repeated(const MappedSpace& space, int64_t bytes) const {
  return space.places.contains(request_of(bytes, live_bytes_));
}

void MappedLane::remember(MappedSpace& space, int64_t bytes, int64_t offset) {
  if (space.places.size() >= kMaxPlaces) space.places.clear();
  space.places[request_of(bytes, live_bytes_)] = offset;
}

void MappedLane::undo(MappedSpace& space, int64_t offset, int64_t bytes) noexcept {
  space.range.give_back(offset, bytes, now());
  const auto [first, count] = space.pages_under(offset, bytes);
  for (int64_t at = first; at < first + count; ++at) {
    if (!pages_.is_in_place(space, at)) space.range.unmap(at, 1);
  }
}

}  // namespace headroom
