#include "allocators/strategies/mapped_lanes.h"

#include <algorithm>

namespace headroom {
namespace {

// A lane is quiet when other lanes freed this many blocks since it last freed one: a few training steps.
constexpr int64_t kQuietFor = 20'000;

}  // namespace

void MappedLanes::add(MappedLane& lane) {
  if (lanes_.size() == lanes_.capacity()) lanes_.reserve(2 * lanes_.size() + 1);
  noted_.reserve(lanes_.capacity());
  freed_since_.reserve(lanes_.capacity());
  lane.for_each_space([&](const MappedSpace& space) { add(lane, space); });
  // It has freed nothing, so it was active before all others.
  lists_[Activity::kActive].push_front(&lane);
  lane.activity.place = lists_[Activity::kActive].begin();
  lanes_.push_back(&lane);
  lane.activity.number = streams_.number_of(lane.stream());
}

void MappedLanes::note(MappedLane& lane) noexcept {
  if (lane.activity.is_noted) return;
  lane.activity.is_noted = true;
  noted_.push_back(&lane);
}

void MappedLanes::compare_clocks() noexcept {
  const int64_t before = now_;
  std::ranges::sort(noted_,
                    [](const MappedLane* a, const MappedLane* b) { return a->own_time() < b->own_time(); });
  for (MappedLane* lane : noted_) {
    lane->activity.is_noted = false;
    if (lane->own_time() <= before) continue;
    lane->activity.freed_at = now_ = lane->own_time();
    move(*lane, Activity::kActive);
    if (!lane->activity.is_freed_since) freed_since_.push_back(lane);
    lane->activity.is_freed_since = true;
  }
  noted_.clear();
  const List& active = lists_[Activity::kActive];
  while (!active.empty() && now_ - active.front()->activity.freed_at >= kQuietFor) {
    move(*active.front(), Activity::kQuiet);
  }
}

bool MappedLanes::are_others_quiet(const MappedLane& lane) const {
  const List& active = lists_[Activity::kActive];
  return active.size() <= (lane.activity.state == Activity::kActive ? 1 : 0);
}

void MappedLanes::move(MappedLane& lane, Activity::State state) noexcept {
  lists_[state].splice(lists_[state].end(), lists_[lane.activity.state], lane.activity.place);
  lane.activity.state = state;
}

}  // namespace headroom
