#include "allocators/replay/replay.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocators/observer.h"
#include "base/bytes.h"
#include "base/edge.h"
#include "device/host/simulated_gpu.h"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

// The streams of a trace, by position there; the first is the default stream.
class TraceStreams {
 public:
  TraceStreams(const Trace& trace, Device& device) : trace_(trace), device_(device), streams_(1) {
    while (streams_.size() < trace.streams.size()) streams_.push_back(device.streams().new_stream());
  }
  ~TraceStreams() {
    for (size_t i = 1; i < streams_.size(); ++i) device_.streams().delete_stream(streams_[i]);
  }
  TraceStreams(const TraceStreams&) = delete;
  TraceStreams& operator=(const TraceStreams&) = delete;

  Stream operator[](int32_t position) const { return streams_[static_cast<size_t>(position)]; }
  // The trace's handle of a stream.
  uint64_t in_trace(Stream stream) const {
    const auto found = std::find(streams_.begin(), streams_.end(), stream);
    return found == streams_.end() ? 0 : trace_.streams[static_cast<size_t>(found - streams_.begin())];
  }

 private:
  const Trace& trace_;
  Device& device_;
  std::vector<Stream> streams_;
};

// One allocator with the live blocks of a trace.
class Player {
 public:
  // `named`: pass the names of the trace to the allocator, for observers. `frees_all`: also the blocks that
  // are live at the end; without it the allocator ends with them, which takes less time.
  Player(const Trace& trace, const TraceStreams& streams, Allocator& allocator, bool named, bool frees_all)
      : trace_(trace),
        streams_(streams),
        allocator_(allocator),
        named_(named),
        frees_all_(frees_all),
        pointers_(static_cast<size_t>(trace.blocks)) {
    for (const DeviceEvent& event : trace.device_events) {
      if (event.kind == DeviceEvent::Kind::kEmptyCache) emptied_.push_back(event.position);
    }
  }
  ~Player() {
    if (frees_all_) free_rest();
  }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  // Plays the events [begin, end), and gives idle memory back where the program did; the position of the one
  // that found no room, or `end`.
  int64_t play(int64_t begin, int64_t end) {
    auto emptied = std::lower_bound(emptied_.begin(), emptied_.end(), begin);
    for (int64_t at = begin; at < end;) {
      for (; emptied != emptied_.end() && *emptied == at; ++emptied) allocator_.trim();
      const int64_t next = emptied == emptied_.end() ? end : std::min(end, *emptied);
      const int64_t played = play_events(at, next);
      if (played < next) return played;
      at = next;
    }
    return end;
  }
  // Of the event that found no room.
  const std::optional<MemoryFacts>& failure() const { return failure_; }

  // Frees what is live.
  void free_rest() noexcept {
    for (const TraceEvent& event : trace_.events) {
      void*& pointer = pointers_[static_cast<size_t>(event.block)];
      if (pointer == nullptr) continue;
      allocator_.deallocate(pointer, event.bytes, streams_[event.stream]);
      pointer = nullptr;
    }
  }

  // Adds what the trace knows about the blocks that are live after that many events.
  void describe(Snapshot& snapshot, int64_t events) const {
    std::unordered_map<const void*, const TraceEvent*> live;
    for (int64_t i = 0; i < events; ++i) {
      const TraceEvent& event = trace_.events[static_cast<size_t>(i)];
      if (event.allocates) live[pointers_[static_cast<size_t>(event.block)]] = &event;
    }
    for (SnapshotSegment& segment : snapshot.segments) {
      for (SnapshotBlock& block : segment.blocks) {
        if (block.stream) block.stream = Stream{reinterpret_cast<void*>(streams_.in_trace(*block.stream))};
        const auto found = live.find(block.pointer);
        if (found == live.end() || block.state != SnapshotBlock::State::kActive) continue;
        block.requested_bytes = found->second->bytes;
        block.op = trace_.names[static_cast<size_t>(found->second->op)];
        block.tensor = trace_.names[static_cast<size_t>(found->second->tag)];
      }
    }
  }

 private:
  int64_t play_events(int64_t begin, int64_t end) {
    const TraceEvent* event = trace_.events.data() + begin;
    int64_t at = begin;
    try {
      for (; at < end; ++at, ++event) {
        void*& pointer = pointers_[static_cast<size_t>(event->block)];
        const Stream stream = streams_[event->stream];
        if (event->allocates) {
          pointer = allocator_.allocate(event->bytes, stream, named_ ? user_of(*event) : MemoryUser{});
        } else {
          allocator_.deallocate(pointer, event->bytes, stream);
          pointer = nullptr;
        }
      }
    } catch (const OutOfMemory& error) {
      failure_ = error.facts();
      const MemoryUser user = user_of(*event);
      failure_->op = user.op;
      failure_->tensor = user.tensor;
      failure_->source = user.source;
    }
    return at;
  }
  MemoryUser user_of(const TraceEvent& event) const {
    const TraceBlock& block = trace_.block_facts[static_cast<size_t>(event.block)];
    const auto name = [this](int32_t position) -> std::string_view {
      return trace_.names[static_cast<size_t>(position)];
    };
    return {name(event.op), name(event.tag), name(block.source), block.category};
  }

  const Trace& trace_;
  const TraceStreams& streams_;
  Allocator& allocator_;
  const bool named_, frees_all_;
  std::optional<MemoryFacts> failure_;
  std::vector<void*> pointers_;   // by block; null: not live
  std::vector<int64_t> emptied_;  // positions at which idle memory is given back, rising
};

double ns_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

bool needs_limit(const StrategySettings& settings) {
  const std::span<const Strategy> known = strategies();
  return std::any_of(known.begin(), known.end(), [&](const Strategy& strategy) {
    return strategy.name == settings.name && strategy.needs_limit;
  });
}

int64_t end_of_last_allocation(const Trace& trace) {
  const auto last = std::find_if(trace.events.rbegin(), trace.events.rend(),
                                 [](const TraceEvent& event) { return event.allocates; });
  return trace.events.rend() - last;
}

}  // namespace

ReplayResult replay(const Trace& trace, const StrategySettings& settings, Device& device, int64_t passes,
                    ReplayEnd end) {
  ReplayResult result;
  device.initialise();  // its cost does not count
  const double driver_time_before_us = device.memory().driver_time_us();
  const TraceStreams streams(trace, device);  // must outlive the allocator, which may wait for them
  std::unique_ptr<Allocator> allocator;
  try {
    allocator = make_allocator(settings, device);
  } catch (const OutOfMemory& error) {
    result.failed_event = 0;
    result.failure = error.facts();
    return result;
  }
  const auto look = [&] {
    result.statistics = allocator->statistics();
    result.fragmentation = result.statistics.fragmentation();
  };
  const auto events = static_cast<int64_t>(trace.events.size());
  const int64_t peak = trace.peak_event + 1;
  double fastest_ns = std::numeric_limits<double>::infinity();
  const bool records = !settings.record_path.empty();
  // A caller's own allocator may have an observer.
  Player player(trace, streams, *allocator, records || settings.make,
                records || !settings.plugin_path.empty());
  for (int64_t pass = 0; pass < passes && result.fits(); ++pass) {
    if (pass > 0) player.free_rest();
    const bool is_last = pass + 1 == passes && end == ReplayEnd::kLastAllocation;
    const int64_t until = is_last ? end_of_last_allocation(trace) : events;
    // Statistics may cost much more than a call, so they are taken once and outside the measured time.
    Clock::time_point begin = Clock::now();
    int64_t at = player.play(0, peak);
    double ns = ns_since(begin);
    look();
    if (at == peak) {
      begin = Clock::now();
      at = player.play(peak, until);
      ns += ns_since(begin);
    }
    if (at < until) {
      result.failed_event = pass * events + at + 1;
      result.failure = player.failure();
      look();
    } else {
      fastest_ns = std::min(fastest_ns, ns);
      result.ns_per_call = fastest_ns / static_cast<double>(until);
    }
  }
  result.statistics = allocator->statistics();
  const MemoryInfo memory = device.memory().info();
  result.used_bytes = memory.peak_used;
  result.enough_total = memory.enough_total;
  result.driver_time_us = device.memory().driver_time_us() - driver_time_before_us;
  return result;
}

int64_t capacity_of(const DeviceProfile& profile) {
  const int64_t bytes = profile.total_bytes - profile.others_bytes - profile.context_bytes;
  return bytes / profile.granularity_bytes * profile.granularity_bytes;
}

namespace {

// Calls play(settings, device) for settings that suit a device with that capacity and nothing else.
template <typename Play>
auto on_bare_device(StrategySettings settings, const DeviceProfile& profile, int64_t capacity_bytes,
                    const Play& play) {
  DeviceProfile bare = profile;
  // Whole pages: the driver cannot give a part of one.
  bare.total_bytes = capacity_bytes / profile.granularity_bytes * profile.granularity_bytes;
  bare.others_bytes = bare.context_bytes = bare.stack_bytes = bare.own_module_bytes = 0;
  bare.blas = bare.dnn = {};
  SimulatedGpu gpu(bare, 0, Backing::kNone);
  if (!settings.reserve_bytes) settings.reserve_bytes = 0;
  if (needs_limit(settings) && !settings.limit_bytes) settings.limit_bytes = bare.total_bytes;
  return play(settings, gpu);
}

}  // namespace

ReplayResult replay_at(const Trace& trace, StrategySettings settings, const DeviceProfile& profile,
                       int64_t capacity_bytes, int64_t passes, ReplayEnd end) {
  return on_bare_device(std::move(settings), profile, capacity_bytes,
                        [&](const StrategySettings& suited, Device& device) {
                          return replay(trace, suited, device, passes, end);
                        });
}

ReplaySnapshot snapshot_at(const Trace& trace, StrategySettings settings, const DeviceProfile& profile,
                           int64_t capacity_bytes, int64_t event) {
  return on_bare_device(std::move(settings), profile, capacity_bytes,
                        [&](const StrategySettings& suited, Device& device) {
                          device.initialise();
                          const TraceStreams streams(trace, device);
                          ReplaySnapshot result;
                          try {
                            const auto allocator = make_allocator(suited, device);
                            Player player(trace, streams, *allocator, false, false);
                            const int64_t played = player.play(0, event);
                            result.snapshot = allocator->snapshot();
                            player.describe(result.snapshot, played);
                            result.out_of_memory = played < event;
                            result.event = result.out_of_memory ? played + 1 : event;
                          } catch (const OutOfMemory&) {  // of the pool itself
                            result.out_of_memory = true;
                          }
                          return result;
                        });
}

std::optional<int64_t> minimum_capacity(const Trace& trace, const StrategySettings& settings,
                                        const DeviceProfile& profile, int64_t passes) {
  constexpr int64_t kMostTimes = 64;
  const int64_t page = profile.granularity_bytes;
  const int64_t least_pages = (trace.peak_bytes + page - 1) / page;
  const bool depends = depends_on_total(settings);
  SearchWork work{.each = passes * static_cast<int64_t>(trace.events.size())};
  const auto attempt = [&](int64_t capacity) {
    try {
      const ReplayResult played =
          replay_at(trace, settings, profile, capacity, passes, ReplayEnd::kLastAllocation);
      EdgeTrial trial{played.fits()};
      if (trial.fits) trial.guess = played.used_bytes;
      if (trial.fits && !depends && played.enough_total > 0) trial.same_from = played.enough_total;
      return trial;
    } catch (const InvalidArgument&) {
      return EdgeTrial{};  // a limit above this capacity
    }
  };
  const std::optional<Edge> edge =
      EdgeSearch(work, attempt, page)
          .lowest((least_pages - 1) * page, kMostTimes * (least_pages + kMostTimes) * page);
  return edge ? std::optional(edge->fitting) : std::nullopt;
}

}  // namespace headroom
