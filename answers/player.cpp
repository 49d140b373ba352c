#include "answers/player.h"

#include <chrono>
#include <string>
#include <unordered_map>

namespace headroom {

Player::Player(const Trace& trace, const TraceStreams& streams, Allocator& allocator, bool frees_all)
    : trace_(trace),
      streams_(streams),
      allocator_(allocator),
      is_named_(allocator.has_observer()),
      frees_all_(frees_all),
      pointers_(static_cast<size_t>(trace_.blocks)) {
  for (const DeviceEvent& event : trace_.device_events) {
    if (event.kind == DeviceEvent::Kind::kEmptyCache) emptied_.push_back(event.position);
  }
}

bool Player::play(int64_t events) {
  using Clock = std::chrono::steady_clock;
  const int64_t peak = trace_.peak_event + 1;
  auto emptied = std::lower_bound(emptied_.begin(), emptied_.end(), event_);
  while (event_ < events) {
    for (; emptied != emptied_.end() && *emptied == event_; ++emptied) allocator_.trim();
    int64_t next = events;
    if (emptied != emptied_.end()) next = std::min(next, *emptied);
    if (event_ < peak) next = std::min(next, peak);
    const Clock::time_point begin = Clock::now();
    play_events(next);
    ns_ += std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
    // Statistics may cost much more than a call, so they are taken once and outside the measured time.
    if (event_ == peak || event_ < next) fragmentation_ = allocator_.statistics().fragmentation();
    if (event_ < next) return false;
  }
  return true;
}

void Player::go_to(int64_t event) {
  event_ = event;
  ns_ = 0;
}

void Player::free_rest() noexcept {
  for (const TraceEvent& event : trace_.events) {
    void*& pointer = pointers_[static_cast<size_t>(event.block)];
    if (pointer == nullptr) continue;
    allocator_.deallocate(pointer, event.bytes, streams_[event.stream]);
    pointer = nullptr;
  }
}

void Player::describe(Snapshot& snapshot) const {
  std::unordered_map<const void*, const TraceEvent*> live;
  for (int64_t i = 0; i < event_; ++i) {
    const TraceEvent& event = trace_.events[static_cast<size_t>(i)];
    if (event.allocates) live[pointers_[static_cast<size_t>(event.block)]] = &event;
  }
  for (SnapshotSegment& segment : snapshot.segments) {
    for (SnapshotBlock& block : segment.blocks) {
      if (block.stream) block.stream = Stream{reinterpret_cast<void*>(streams_.in_trace(*block.stream))};
      const auto found = live.find(block.pointer);
      if (found == live.end() || block.state != SnapshotBlock::State::kActive) continue;
      block.requested_bytes = found->second->bytes;
      block.op = name(found->second->op);
      block.tensor = name(found->second->tag);
    }
  }
}

void Player::play_events(int64_t end) {
  const TraceEvent* event = trace_.events.data() + event_;
  try {
    for (; event_ < end; ++event_, ++event) {
      void*& pointer = pointers_[static_cast<size_t>(event->block)];
      const Stream stream = streams_[event->stream];
      if (event->allocates) {
        pointer = allocator_.allocate(event->bytes, stream, is_named_ ? user_of(*event) : MemoryUser{});
      } else {
        allocator_.deallocate(pointer, event->bytes, stream);
        pointer = nullptr;
      }
    }
  } catch (const OutOfMemory& error) {
    const MemoryUser user = user_of(*event);
    failure_ = error;
    failure_->set_user(std::string(user.op), std::string(user.tensor), std::string(user.source));
  }
}

MemoryUser Player::user_of(const TraceEvent& event) const {
  const TraceBlock& block = trace_.block_facts[static_cast<size_t>(event.block)];
  return {name(event.op), name(event.tag), name(block.source), block.category};
}

}  // namespace headroom
