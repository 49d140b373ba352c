#include "answers/player.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/text.h"

namespace headroom {

std::vector<int64_t> smaller_workspaces(std::string_view tensor) {
  constexpr std::string_view kElse = ", else ";
  std::vector<int64_t> sizes;
  const size_t other = tensor.find(kElse);
  if (!tensor.starts_with("workspace of ") || other == std::string_view::npos) return sizes;
  for (const std::string_view number : split(tensor.substr(other + kElse.size()), ", ")) {
    const auto bytes = parse_number<int64_t>(number);
    if (!bytes || *bytes < 0) return {};
    sizes.push_back(*bytes);
  }
  return sizes;
}

int64_t least_peak_bytes(const Trace& trace) {
  std::unordered_map<int32_t, int64_t> least;  // by the position of the name
  for (size_t i = 0; i < trace.names.size(); ++i) {
    const std::vector<int64_t> sizes = smaller_workspaces(trace.names[i]);
    if (!sizes.empty()) least[static_cast<int32_t>(i)] = std::ranges::min(sizes);
  }
  if (least.empty()) return trace.peak_bytes;
  std::vector<int64_t> taken(static_cast<size_t>(trace.blocks));
  int64_t live = 0, peak = 0;
  for (const TraceEvent& event : trace.events) {
    int64_t& bytes = taken[static_cast<size_t>(event.block)];
    if (!event.allocates) {
      live -= std::exchange(bytes, 0);
      continue;
    }
    const auto found = least.find(event.tag);
    bytes = found == least.end() ? event.bytes : std::min(event.bytes, found->second);
    peak = std::max(peak, live += bytes);
  }
  return peak;
}

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
  for (size_t i = 0; i < trace_.names.size(); ++i) {
    std::vector<int64_t> sizes = smaller_workspaces(trace_.names[i]);
    if (!sizes.empty()) workspaces_[static_cast<int32_t>(i)].bytes = std::move(sizes);
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
    deallocate(pointer, event, streams_[event.stream]);
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
        pointer = allocate(*event, stream);
      } else {
        deallocate(std::exchange(pointer, nullptr), *event, stream);
      }
    }
  } catch (const OutOfMemory& error) {
    const MemoryUser user = user_of(*event);
    failure_ = error;
    failure_->set_user(std::string(user.op), std::string(user.tensor), std::string(user.source));
  }
}

inline void* Player::allocate(const TraceEvent& event, Stream stream) {
  if (!workspaces_.empty() && event.tag != 0) [[unlikely]] {
    const auto found = workspaces_.find(event.tag);
    if (found != workspaces_.end()) return allocate(found->second, event, stream);
  }
  return allocator_.allocate(event.bytes, stream, is_named_ ? user_of(event) : MemoryUser{});
}

void* Player::allocate(Workspace& workspace, const TraceEvent& event, Stream stream) {
  const MemoryUser user = is_named_ ? user_of(event) : MemoryUser{};
  while (true) {
    const int64_t bytes = workspace.refused == 0 ? event.bytes : workspace.bytes[workspace.refused - 1];
    try {
      void* const pointer = bytes == 0 ? nullptr : allocator_.allocate(bytes, stream, user);
      taken_[event.block] = bytes;
      return pointer;
    } catch (const OutOfMemory&) {
      if (workspace.refused++ == workspace.bytes.size()) throw;
    }
  }
}

inline void Player::deallocate(void* pointer, const TraceEvent& event, Stream stream) noexcept {
  int64_t bytes = event.bytes;
  if (!taken_.empty()) [[unlikely]] {
    const auto found = taken_.find(event.block);
    if (found != taken_.end()) {
      bytes = found->second;
      taken_.erase(found);
    }
  }
  if (bytes > 0) allocator_.deallocate(pointer, bytes, stream);
}

MemoryUser Player::user_of(const TraceEvent& event) const {
  const TraceBlock& block = trace_.block_facts[static_cast<size_t>(event.block)];
  return {name(event.op), name(event.tag), name(block.source), block.category};
}

}  // namespace headroom
