#include "tools/report/history.h"

#include <iterator>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "trace/stack.h"

namespace headroom::report {
namespace {

// A page takes about 60 bytes for each block: a megabyte.
constexpr size_t kMaxBlocks = 20'000, kMaxBlocksAtPeak = 12'000;

// The folder that all sources share, with its '/'.
std::string_view shared_folder(const Trace& trace) {
  std::optional<std::string_view> shared;
  for (const TraceBlock& block : trace.block_facts) {
    const std::string_view source = trace.names[static_cast<size_t>(block.source)];
    if (source.empty()) continue;
    if (!shared) shared = source.substr(0, source.rfind('/') + 1);
    const auto ends = std::mismatch(shared->begin(), shared->end(), source.begin(), source.end());
    const std::string_view both = shared->substr(0, static_cast<size_t>(ends.first - shared->begin()));
    shared = both.substr(0, both.rfind('/') + 1);
  }
  return shared.value_or("");
}

uint64_t end_of(uint64_t address, int64_t bytes) {
  const uint64_t room = std::numeric_limits<uint64_t>::max() - address;
  return address + std::min(room, static_cast<uint64_t>(bytes));
}

}  // namespace

// One pass over all events.
class History::Walk {
 public:
  explicit Walk(History& history) : h_(history), trace_(history.trace) {
    h_.lifetimes.resize(static_cast<size_t>(trace_.blocks));
    h_.allocation_.resize(static_cast<size_t>(trace_.blocks));
    const auto events = static_cast<int64_t>(trace_.events.size());
    per_sample_ = std::max<int64_t>(1, (events + kMaxSamples - 1) / kMaxSamples);
  }

  void run() {
    const auto events = static_cast<int64_t>(trace_.events.size());
    for (int64_t at = 0; at < events; ++at) {
      const TraceEvent& event = trace_.events[static_cast<size_t>(at)];
      device_events(at);
      apply(event, at);
      now_.event = at + 1;
      now_.time_ns = event.time_ns;
      if (now_.live_bytes > now_.reserved_bytes) reserved_is_whole_ = false;
      if (now_.live_bytes > best_.live_bytes || best_.event == 0) best_ = now_;
      if ((at + 1) % per_sample_ == 0 || at + 1 == events) take_sample();
    }
    device_events(events);
    if (h_.samples.empty()) h_.samples.push_back(now_);  // only a request that failed
    h_.live_at_end_bytes = now_.live_bytes;
    if (reserved_is_whole_ && h_.knows_driver) {
      h_.peak_reserved_bytes = peak_reserved_;
    } else {
      for (MemorySample& sample : h_.samples) sample.reserved_bytes = 0;
    }
  }

 private:
  void apply(const TraceEvent& event, int64_t at) {
    const auto block = static_cast<size_t>(event.block);
    const auto category = static_cast<size_t>(trace_.block_facts[block].category);
    const int64_t change = event.allocates ? event.bytes : -event.bytes;
    now_.bytes[category] += change;
    now_.live_bytes += change;
    const TraceBlock& facts = trace_.block_facts[block];
    const int64_t block_bytes = facts.is_part ? 0 : std::max(facts.block_bytes, event.bytes);
    allocated_ += event.allocates ? block_bytes : -block_bytes;
    if (event.allocates) {
      h_.lifetimes[block] = {at + 1, end_};
      h_.allocation_[block] = static_cast<size_t>(at);
    } else {
      h_.lifetimes[block].end = at + 1;
    }
    if (now_.live_bytes > h_.peak_bytes) {
      h_.peak_bytes = now_.live_bytes;
      h_.allocated_at_peak = allocated_;
    }
  }

  // Applies the device events that precede event `at`.
  void device_events(int64_t at) {
    using Kind = DeviceEvent::Kind;
    for (; next_ < trace_.device_events.size() && trace_.device_events[next_].position <= at; ++next_) {
      const DeviceEvent& event = trace_.device_events[next_];
      switch (event.kind) {
        case Kind::kReserve:
          if (event.address != 0) {
            open_[event.address] = h_.segments.size();
            h_.segments.push_back({event.address, event.bytes, {at + 1, end_}, next_});
          }
          reserve(event.bytes, at);
          break;
        case Kind::kUnreserve:
          close_segment(event, at);
          reserve(-event.bytes, at);
          break;
        case Kind::kRetry:
          ++h_.retries;
          break;
        case Kind::kOutOfMemory:
          ++h_.out_of_memory;
          break;
        case Kind::kEmptyCache:  // released memory is in events of its own
          break;
        case Kind::kDevice: {
          // There are no reservations beside the blocks if the driver gives each of them.
          const int64_t held = h_.knows_driver ? now_.reserved_bytes : now_.live_bytes;
          now_.library_bytes = std::max<int64_t>(0, event.process_bytes - held);
          h_.library_bytes = std::max(h_.library_bytes, now_.library_bytes);
          break;
        }
      }
    }
  }

  void reserve(int64_t bytes, int64_t at) {
    h_.knows_driver = true;
    if (at >= trace_.live_before) ++h_.driver_calls;  // else reserved before the history began
    if (__builtin_add_overflow(now_.reserved_bytes, bytes, &now_.reserved_bytes) || now_.reserved_bytes < 0) {
      now_.reserved_bytes = 0;
      reserved_is_whole_ = false;
    }
    peak_reserved_ = std::max(peak_reserved_, now_.reserved_bytes);
  }

  void close_segment(const DeviceEvent& event, int64_t at) {
    const auto found = open_.find(event.address);
    if (found == open_.end()) return;
    Segment& segment = h_.segments[found->second];
    segment.held.end = at + 1;
    segment.returned = next_;
    open_.erase(found);
  }

  void take_sample() {
    if (best_.live_bytes > best_of_all_) {
      best_of_all_ = best_.live_bytes;
      h_.peak_sample = h_.samples.size();
    }
    h_.samples.push_back(best_);
    best_ = {};
  }

  History& h_;
  const Trace& trace_;
  MemorySample now_, best_;
  int64_t per_sample_ = 1, allocated_ = 0, peak_reserved_ = 0;
  int64_t best_of_all_ = 0;
  const int64_t end_ = static_cast<int64_t>(trace_.events.size()) + 1;  // end of blocks that are never freed
  size_t next_ = 0;
  std::unordered_map<uint64_t, size_t> open_;  // by address: position in History::segments
  bool reserved_is_whole_ = true;
};

History::History(const Trace& of) : trace(of), shared_folder_(shared_folder(of)) {
  Walk(*this).run();
  if (!peak_reserved_bytes) return;
  std::vector<Segment> held;
  std::copy_if(segments.begin(), segments.end(), std::back_inserter(held),
               [&](const Segment& segment) { return segment.held.has(peak_event()); });
  idle_at_peak = find_idle(held, peak_event());
  // Some of what is reserved has no address.
  if (idle_at_peak && idle_at_peak->reserved_bytes != samples[peak_sample].reserved_bytes)
    idle_at_peak.reset();
  if (!idle_at_peak) return;
  const auto idle = static_cast<double>(idle_at_peak->bytes);
  fragmentation = idle > 0 ? (idle - static_cast<double>(idle_at_peak->largest_bytes)) / idle : 0;
}

std::vector<size_t> History::live_blocks(int64_t event) const {
  std::vector<size_t> live;
  for (size_t block = 0; block < lifetimes.size(); ++block) {
    if (is_live(block, event) && bytes(block) > 0) live.push_back(block);
  }
  std::ranges::stable_sort(live, [&](size_t a, size_t b) { return bytes(a) > bytes(b); });
  return live;
}

const std::string& History::op(size_t block) const {
  return trace.names[static_cast<size_t>(trace.events[allocation_[block]].op)];
}

const std::string& History::tensor(size_t block) const {
  return trace.names[static_cast<size_t>(trace.events[allocation_[block]].tag)];
}

std::string History::source(size_t block) const {
  return short_source(trace.names[static_cast<size_t>(trace.block_facts[block].source)]);
}

std::string History::short_source(const std::string& text) const {
  return text.starts_with(shared_folder_) ? text.substr(shared_folder_.size())
                                          : std::string(path_in_package(text));
}

std::optional<History::Idle> History::find_idle(std::span<const Segment> held, int64_t event) const {
  struct Range {
    uint64_t begin, end;
  };
  if (held.empty() || !trace.has_addresses) return std::nullopt;
  std::vector<Range> blocks, places;
  for (size_t block = 0; block < lifetimes.size(); ++block) {
    if (!is_live(block, event)) continue;
    const uint64_t address = trace.block_facts[block].address;
    blocks.push_back({address, end_of(address, block_bytes(block))});
  }
  uint64_t reserved = 0, idle = 0, largest = 0;
  for (const Segment& segment : held) {
    places.push_back({segment.address, end_of(segment.address, segment.bytes)});
    reserved += places.back().end - places.back().begin;
  }
  const auto by_begin = [](const Range& a, const Range& b) { return a.begin < b.begin; };
  std::ranges::sort(blocks, by_begin);
  std::ranges::sort(places, by_begin);
  Idle found;
  auto block = blocks.begin();
  for (const Range& place : places) {
    uint64_t at = place.begin;
    const auto gap_until = [&](uint64_t end) {
      if (end <= at) return;
      idle += end - at;
      largest = std::max(largest, end - at);
      ++found.pieces;
    };
    while (block != blocks.end() && block->begin < place.begin) ++block;
    for (; block != blocks.end() && block->begin < place.end; ++block) {
      gap_until(block->begin);
      at = std::max(at, std::min(block->end, place.end));
    }
    gap_until(place.end);
  }
  if (reserved > uint64_t{1} << 62) return std::nullopt;  // the file is wrong
  found.reserved_bytes = static_cast<int64_t>(reserved);
  found.bytes = static_cast<int64_t>(idle);
  found.largest_bytes = static_cast<int64_t>(largest);
  return found;
}

std::vector<size_t> choose_blocks(const History& history) {
  std::vector<size_t> chosen = history.live_blocks(history.peak_event());
  chosen.resize(std::min(chosen.size(), kMaxBlocksAtPeak));
  std::vector<bool> taken(history.lifetimes.size());
  for (size_t block : chosen) taken[block] = true;
  std::vector<size_t> rest;
  for (size_t block = 0; block < history.lifetimes.size(); ++block) {
    if (!taken[block] && history.bytes(block) > 0) rest.push_back(block);
  }
  const auto weight = [&](size_t block) {
    const Lifetime& life = history.lifetimes[block];
    return static_cast<double>(history.bytes(block)) * static_cast<double>(life.end - life.begin);
  };
  const size_t room = std::min(rest.size(), kMaxBlocks - chosen.size());
  std::nth_element(rest.begin(), rest.begin() + static_cast<long>(room), rest.end(),
                   [&](size_t a, size_t b) { return weight(a) > weight(b); });
  chosen.insert(chosen.end(), rest.begin(), rest.begin() + static_cast<long>(room));
  std::ranges::sort(chosen);  // in the order in which they were allocated
  return chosen;
}

}  // namespace headroom::report
