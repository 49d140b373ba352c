#include "allocators/strategies/segment_places.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/bytes.h"

namespace headroom {
namespace {

constexpr int64_t kUnitBytes = 32 * kMiB;
constexpr int64_t kTop = int64_t{1} << 62;
// Of a new context: its code with a gap above it, and below that the stacks of its threads with another.
constexpr int64_t kCodeBytes = 96 * kMiB, kCodeGapBytes = 24 * kMiB;
constexpr int64_t kStackBytes = 414 * kMiB, kStackGapBytes = 2 * kMiB;

}  // namespace

SegmentPlaces::SegmentPlaces(int64_t allocations) : kernels_after_(allocations), holes_({{0, kTop}}) {
  for (const auto& [bytes, gap_bytes] :
       {std::pair(kCodeBytes, kCodeGapBytes), std::pair(kStackBytes + kStackGapBytes, kStackGapBytes)}) {
    const Range range = take_hole(bytes);
    chunks_.push_back({range, {{range.end() - gap_bytes, gap_bytes}}});
  }
}

int64_t SegmentPlaces::take(int64_t bytes, int64_t allocations) {
  if (has_old_stacks_ && allocations > kernels_after_) {
    has_old_stacks_ = false;
    give_back(kTop - kCodeBytes - kStackGapBytes - kStackBytes, kStackBytes);
  }
  for (auto chunk = chunks_.rbegin(); chunk != chunks_.rend(); ++chunk) {
    const auto gap = std::find_if(chunk->gaps.rbegin(), chunk->gaps.rend(),
                                  [&](const Range& each) { return each.bytes >= bytes; });
    if (gap == chunk->gaps.rend()) continue;
    const int64_t address = gap->begin;
    *gap = {address + bytes, gap->bytes - bytes};
    if (gap->bytes == 0) chunk->gaps.erase(std::next(gap).base());
    return address;
  }
  const Range range = take_hole(round_up(bytes, kUnitBytes));
  chunks_.push_back({range, {}});
  if (range.bytes > bytes) chunks_.back().gaps.push_back({range.begin + bytes, range.bytes - bytes});
  return range.begin;
}

void SegmentPlaces::give_back(int64_t address, int64_t bytes) noexcept {
  const auto chunk = std::ranges::find_if(
      chunks_, [&](const Chunk& each) { return each.range.begin <= address && address < each.range.end(); });
  if (chunk == chunks_.end()) return;
  Range gap{address, bytes};
  std::erase_if(chunk->gaps, [&](const Range& each) {
    if (each.end() != gap.begin && gap.end() != each.begin) return false;
    gap = {std::min(each.begin, gap.begin), each.bytes + gap.bytes};
    return true;
  });
  chunk->gaps.push_back(gap);
  if (gap.bytes < chunk->range.bytes) return;
  add_hole(gap);
  chunks_.erase(chunk);
}

// The end of the highest hole with room; there is always one, as devices have fewer bytes than there are
// addresses.
SegmentPlaces::Range SegmentPlaces::take_hole(int64_t bytes) {
  auto hole = std::prev(holes_.end());
  while (hole->second < bytes && hole != holes_.begin()) --hole;
  hole->second -= bytes;
  const Range range{hole->first + hole->second, bytes};
  if (hole->second == 0) holes_.erase(hole);
  return range;
}

void SegmentPlaces::add_hole(Range hole) noexcept {
  const auto above = holes_.find(hole.end());
  if (above != holes_.end()) {
    hole.bytes += above->second;
    holes_.erase(above);
  }
  const auto next = holes_.upper_bound(hole.begin);
  const auto below = next == holes_.begin() ? holes_.end() : std::prev(next);
  if (below != holes_.end() && below->first + below->second == hole.begin) {
    below->second += hole.bytes;
  } else {
    holes_[hole.begin] = hole.bytes;
  }
}

}  // namespace headroom
