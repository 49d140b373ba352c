#include "allocators/observer.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "allocators/allocator.h"

namespace headroom {

using EventKind = AllocatorEvent::Kind;

void observe_part(Allocator& allocator, void* pointer, int64_t bytes, int64_t first, int64_t end,
                  const MemoryUser& user) {
  allocator.observe({.kind = EventKind::kPart,
                     .pointer = pointer,
                     .requested_bytes = bytes,
                     .stream = {},
                     .user = user,
                     .first = first,
                     .end = end});
}

void Allocator::set_observer(std::function<void(const AllocatorEvent&)> observer) {
  const Lock lock(*this);
  observer_ = std::move(observer);
  if (!observer_) return;
  int64_t unplaced = reserved_now();
  std::vector<SnapshotSegment> segments;
  do_snapshot(segments);
  for (const SnapshotSegment& segment : segments) {
    notify_reserved(segment.pointer, segment.bytes);
    unplaced -= segment.bytes;
  }
  if (unplaced > 0) notify_reserved(nullptr, unplaced);
  notify_device();
}

void Allocator::observe(const AllocatorEvent& event) const {
  const Lock lock(*this);
  if (observer_) notify(event);
}

void Allocator::observe_device() const {
  const Lock lock(*this);
  if (observer_) notify_device();
}

void Allocator::notify(const AllocatorEvent& event) const {
  observer_(event);
}

// Negative: released.
void Allocator::notify_reserved(void* pointer, int64_t bytes) const {
  notify({bytes > 0 ? EventKind::kReserve : EventKind::kUnreserve, pointer, std::abs(bytes), {}});
}

void Allocator::notify_device() const {
  const MemoryInfo info = device_.memory().info();
  notify(
      {.kind = EventKind::kDevice, .pointer = nullptr, .requested_bytes = 0, .stream = {}, .memory = &info});
}

}  // namespace headroom
