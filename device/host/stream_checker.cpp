#include "device/host/stream_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/errors.h"

namespace headroom {
namespace {

void join_clocks(StreamChecker::Clock& clock, const StreamChecker::Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

bool clock_has(const StreamChecker::Clock& clock, size_t stream, uint64_t turn) {
  return stream < clock.size() && clock[stream] >= turn;
}

uintptr_t address_of_use(const MemoryUse& use) {
  return reinterpret_cast<uintptr_t>(use.data);
}

}  // namespace

size_t StreamChecker::index_of(Stream stream) {
  const auto found = std::ranges::find(streams_, stream);
  if (found != streams_.end()) return static_cast<size_t>(found - streams_.begin());
  streams_.push_back(stream);
  clocks_.emplace_back();
  return streams_.size() - 1;
}

StreamChecker::Clock& StreamChecker::clock_of(size_t stream) {
  Clock& clock = clocks_[stream];
  if (clock.size() < streams_.size()) clock.resize(streams_.size());
  return clock;
}

void StreamChecker::add(Stream stream, const StreamWork& work) {
  const size_t index = index_of(stream);
  Clock clock = clock_of(index);
  join_clocks(clock, host_);
  for (const MemoryUse& use : work.uses) check(index, clock, work, use);
  ++clock[index];
  const auto label = std::make_shared<const Label>(Label{work.name, work.place});
  for (const MemoryUse& use : work.uses) {
    if (use.bytes > 0) note({index, clock[index], label, use.name}, use);
  }
  clocks_[index] = std::move(clock);
}

StreamChecker::Clock StreamChecker::now(Stream stream) {
  Clock clock = clock_of(index_of(stream));
  join_clocks(clock, host_);
  return clock;
}

void StreamChecker::wait(Stream stream, const Clock& event) {
  join_clocks(clock_of(index_of(stream)), event);
}

void StreamChecker::host_waits(const Clock& event) {
  join_clocks(host_, event);
}

void StreamChecker::host_waits_for_all() {
  for (const Clock& clock : clocks_) join_clocks(host_, clock);
}

void StreamChecker::check(size_t stream, const Clock& clock, const StreamWork& work,
                          const MemoryUse& use) const {
  if (use.bytes <= 0) return;
  const uintptr_t begin = address_of_use(use), end = begin + static_cast<uintptr_t>(use.bytes);
  const auto complain = [&](const Access& earlier, bool wrote) {
    StreamHazard::Access now{streams_[stream].handle, use.writes, work.name, work.place};
    StreamHazard::Access before{streams_[earlier.stream].handle, wrote, earlier.label->work,
                                earlier.label->place};
    std::string value = !use.name.empty()       ? use.name
                        : !earlier.name.empty() ? earlier.name
                                                : fmt::format("{} bytes at {}", use.bytes, use.data);
    throw StreamHazard(std::move(before), std::move(now), std::move(value));
  };
  const auto is_loose = [&](const Access& earlier) {
    return earlier.turn > 0 && earlier.stream != stream && !clock_has(clock, earlier.stream, earlier.turn);
  };
  auto at = histories_.upper_bound(begin);
  if (at != histories_.begin()) --at;
  for (; at != histories_.end() && at->first < end; ++at) {
    const History& history = at->second;
    if (history.end <= begin) continue;
    if (is_loose(history.write)) complain(history.write, true);
    if (!use.writes) continue;
    for (const Access& read : history.reads) {
      if (is_loose(read)) complain(read, false);
    }
  }
}

// Splits the history that spans the address, so that one begins there; returns the first that begins there or
// later.
StreamChecker::Histories::iterator StreamChecker::split_at(uintptr_t address) {
  const auto next = histories_.lower_bound(address);
  if (next == histories_.begin()) return next;
  const auto before = std::prev(next);
  if (before->second.end <= address) return next;
  History rest = before->second;
  before->second.end = address;
  return histories_.emplace_hint(next, address, std::move(rest));
}

void StreamChecker::note(const Access& access, const MemoryUse& use) {
  const uintptr_t begin = address_of_use(use), end = begin + static_cast<uintptr_t>(use.bytes);
  split_at(end);
  auto at = split_at(begin);
  if (use.writes) {
    while (at != histories_.end() && at->first < end) at = histories_.erase(at);
    histories_.emplace_hint(at, begin, History{end, access, {}});
    return;
  }
  for (uintptr_t from = begin; from < end;) {
    if (at == histories_.end() || at->first > from) {
      const uintptr_t to = at == histories_.end() ? end : std::min(end, at->first);
      at = histories_.emplace_hint(at, from, History{to});
    }
    std::vector<Access>& reads = at->second.reads;
    std::erase_if(reads, [&](const Access& read) { return read.stream == access.stream; });
    reads.push_back(access);
    from = at->second.end;
    ++at;
  }
}

void StreamChecker::forget(const void* data, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes);
  split_at(end);
  auto at = split_at(begin);
  while (at != histories_.end() && at->first < end) at = histories_.erase(at);
}

}  // namespace headroom
