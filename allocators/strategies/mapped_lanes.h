// The lanes of `mapped`: by stream, by address, and by the time of the last free in each. No function visits
// all lanes at each request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "allocators/strategies/mapped_lane.h"
#include "allocators/strategies/stream_numbers.h"

namespace headroom {

// The allocator is locked whenever anything but now() is called.
class MappedLanes {
 public:
  // Null when the stream has no lane.
  MappedLane* find(Stream stream) const {
    const int32_t number = streams_.find(stream);
    return number == StreamNumbers::kNone ? nullptr : lanes_[static_cast<size_t>(number)];
  }
  // The lane with that address in one of its spaces, or null.
  MappedLane* with(const void* pointer) const noexcept {
    const auto found = by_address_.lower_bound(pointer);
    return found == by_address_.end() ? nullptr : found->second;
  }
  // Adds a lane for a stream that has none, and another space of a lane. Both must outlive this.
  void add(MappedLane& lane);
  void add(MappedLane& lane, const MappedSpace& space) { by_address_[space.base] = &lane; }
  // By the number of their stream.
  std::span<MappedLane* const> all() const { return lanes_; }

  // The latest time of any lane when they were last compared. Lanes may read it at any time: it changes only
  // while they are stopped.
  const int64_t& now() const { return now_; }
  // Notes that blocks may have been freed in the lane since then.
  void note(MappedLane& lane) noexcept;
  // Lanes have clocks of their own. After this call, every free of a lane is later than all earlier frees of
  // any lane (Lamport, "Time, clocks, and the ordering of events in a distributed system", 1978).
  void compare_clocks() noexcept;

  // Calls visit(lane) for this lane and all that have been quiet for long, or for all lanes; visit returns
  // true if the lane has idle pages. Skips other lanes known to have none.
  template <class Visit>
  void for_each_with_idle(MappedLane& lane, bool all, const Visit& visit) {
    visit(lane);
    if (lane.activity.state == Activity::kEmpty) move(lane, Activity::kQuiet);
    List& quiet = lists_[Activity::kQuiet];
    for (auto each = quiet.begin(); each != quiet.end();) {
      MappedLane& other = **each++;
      if (&other != &lane && !visit(other)) move(other, Activity::kEmpty);
    }
    if (!all) return;
    for (MappedLane* other : lists_[Activity::kActive]) {
      if (other != &lane) visit(*other);
    }
  }
  // Returns true if all lanes but this one have been quiet for long.
  bool are_others_quiet(const MappedLane& lane) const;
  // Calls visit(lane) for those in which blocks were freed since the last such call.
  template <class Visit>
  void for_each_freed_since(const Visit& visit) {
    for (MappedLane* lane : freed_since_) visit(*lane);
    for (MappedLane* lane : freed_since_) lane->activity.is_freed_since = false;
    freed_since_.clear();
  }

 private:
  using Activity = MappedLane::Activity;
  using List = std::list<MappedLane*>;

  void move(MappedLane& lane, Activity::State state) noexcept;

  StreamNumbers streams_;
  std::vector<MappedLane*> lanes_;                                 // by number of their stream
  std::map<const void*, MappedLane*, std::greater<>> by_address_;  // the highest first
  int64_t now_ = 0;
  std::vector<MappedLane*> noted_, freed_since_;  // have room for all
  List lists_[3];  // by state; the active ones by when a block was last freed in them
};

}  // namespace headroom
