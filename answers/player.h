// Plays the events of one trace to one allocator, piece by piece. Knows no machine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "allocators/allocator.h"
#include "allocators/observer.h"
#include "base/errors.h"
#include "device/device.h"
#include "trace/trace.h"

namespace headroom {

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
    const auto found = std::ranges::find(streams_, stream);
    return found == streams_.end() ? 0 : trace_.streams[static_cast<size_t>(found - streams_.begin())];
  }

 private:
  const Trace& trace_;
  Device& device_;
  std::vector<Stream> streams_;
};

// Smaller workspaces that serve as well, by the name of a block of a trace: "workspace of 33701904 for
// convolution 2, else 16924688, 0". Empty for other blocks.
std::vector<int64_t> smaller_workspaces(std::string_view tensor);
// Returns the peak of live bytes with the smallest of these.
int64_t least_peak_bytes(const Trace& trace);

// One allocator with the live blocks of a trace. Gives idle memory back where the program empties its cache.
class Player {
 public:
  // `frees_all`: also the blocks that are live at the end; without it the allocator ends with them, which
  // takes less time. All must outlive this.
  Player(const Trace& trace, const TraceStreams& streams, Allocator& allocator, bool frees_all = false);
  ~Player() {
    if (frees_all_) free_rest();
  }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  // Goes on up to that position among the events. Returns false when an event found no room.
  bool play(int64_t events);
  void go_to(int64_t event);
  // Frees what is live.
  void free_rest() noexcept;

  const Allocator& allocator() const { return allocator_; }
  // The next one; after a failure the one without room.
  int64_t event() const { return event_; }
  double ns() const { return ns_; }  // time of the events since go_to
  // Returns the fragmentation (see Statistics) at the peak of live bytes, or at the failure.
  double fragmentation() const { return fragmentation_; }
  const std::optional<OutOfMemory>& failure() const { return failure_; }

  // Adds what the trace knows about the blocks that are live now.
  void describe(Snapshot& snapshot) const;

 private:
  // A convolution has engines with smaller workspaces: PyTorch tries them, from its first choice on, until
  // one finds room, and keeps to it.
  struct Workspace {
    std::vector<int64_t> bytes = {};  // of the other engines
    size_t refused = 0;               // engines that found no room
  };

  void play_events(int64_t end);
  void* allocate(const TraceEvent& event, Stream stream);
  void* allocate(Workspace& workspace, const TraceEvent& event, Stream stream);
  void deallocate(void* pointer, const TraceEvent& event, Stream stream) noexcept;
  MemoryUser user_of(const TraceEvent& event) const;
  std::string_view name(int32_t position) const { return trace_.names[static_cast<size_t>(position)]; }

  const Trace& trace_;
  const TraceStreams& streams_;
  Allocator& allocator_;
  const bool is_named_;  // the names of the trace go to the allocator, for its observer
  const bool frees_all_;
  std::optional<OutOfMemory> failure_;
  std::vector<void*> pointers_;                        // by block; null: not live
  std::unordered_map<int32_t, Workspace> workspaces_;  // by the position of their name
  std::unordered_map<int32_t, int64_t> taken_;         // live workspaces: block -> bytes
  std::vector<int64_t> emptied_;                       // positions at which idle memory is given back, rising
  int64_t event_ = 0;
  double ns_ = 0, fragmentation_ = 0;
};

}  // namespace headroom
