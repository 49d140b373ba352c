#include "allocators/pending_blocks.h"

#include <algorithm>
#include <utility>

namespace headroom {

void PendingBlocks::record_use(void* pointer, Stream stream) {
  std::vector<Stream>& streams = other_uses_[pointer];
  if (std::ranges::find(streams, stream) == streams.end()) streams.push_back(stream);
}

bool PendingBlocks::defer(void* pointer, int64_t bytes, Stream stream) noexcept {
  const auto uses = other_uses_.find(pointer);
  if (uses == other_uses_.end()) return false;
  try {
    Pending pending{pointer, bytes, stream, {}};
    for (const Stream other : uses->second) {
      if (!(other == stream)) pending.events.push_back(device_.streams().record_event(other));
    }
    other_uses_.erase(uses);
    if (pending.events.empty()) return false;
    pending_.push_back(std::move(pending));
  } catch (...) {
    return false;
  }
  return true;
}

bool PendingBlocks::is_done(const Pending& pending, bool wait) {
  for (const std::unique_ptr<Event>& event : pending.events) {
    if (wait) event->wait();
    if (!event->done()) return false;
  }
  return true;
}

}  // namespace headroom
