#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tools/report/exchange.h"
#include "trace/stack.h"

namespace headroom::report {
namespace {

// Writes a pickle with the few opcodes that the viewer reads; the names are those of Python's pickletools.
class PickleWriter {
 public:
  PickleWriter() { text_ = "\x80\x04"; }

  void begin_dictionary() { text_ += "}("; }
  void end_dictionary() { text_ += 'u'; }
  void begin_list() { text_ += "]("; }
  void end_list() { text_ += 'e'; }

  // Keys and other texts that repeat are written once.
  void text(std::string_view value) {
    const auto [at, added] = memo_.try_emplace(std::string(value), memoized_);
    if (!added) return get(at->second);
    text_ += 'X';
    little_endian(value.size(), 4);
    text_ += value;
    memoize();
  }
  void integer(int64_t value) {
    if (value >= INT32_MIN && value <= INT32_MAX) {
      text_ += 'J';
      little_endian(static_cast<uint64_t>(value), 4);
    } else {
      text_ += "\x8a\x08";
      little_endian(static_cast<uint64_t>(value), 8);
    }
  }
  void item(std::string_view key, std::string_view value) {
    text(key);
    text(value);
  }
  void item(std::string_view key, int64_t value) {
    text(key);
    integer(value);
  }
  // Returns the number under which get() finds the last written value.
  uint64_t memoize() {
    text_ += '\x94';
    return memoized_++;
  }
  void get(uint64_t number) {
    text_ += 'j';
    little_endian(number, 4);
  }
  std::string take() {
    text_ += '.';
    return std::move(text_);
  }

 private:
  void little_endian(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) text_ += static_cast<char>(value >> (8 * i) & 0xff);
  }

  std::string text_;
  std::unordered_map<std::string, uint64_t> memo_;
  uint64_t memoized_ = 0;
};

class Snapshot {
 public:
  explicit Snapshot(const History& history) : history_(history), trace_(history.trace) {}

  std::string write() {
    pickle_.begin_dictionary();
    pickle_.text("segments");
    segments();
    pickle_.text("device_traces");
    pickle_.begin_list();
    events();
    pickle_.end_list();
    pickle_.end_dictionary();
    return pickle_.take();
  }

 private:
  void frames(int32_t stack) {
    pickle_.text("frames");
    if (const auto known = stacks_.find(stack); known != stacks_.end()) return pickle_.get(known->second);
    pickle_.begin_list();
    for (const StackFrame& frame : frames_of(trace_.names[static_cast<size_t>(stack)])) {
      const auto [at, added] = frames_.try_emplace(text_of(frame), 0);
      if (!added) {
        pickle_.get(at->second);
        continue;
      }
      pickle_.begin_dictionary();
      pickle_.item("filename", frame.file);
      pickle_.item("line", frame.line);
      pickle_.item("name", frame.function);
      pickle_.end_dictionary();
      at->second = pickle_.memoize();
    }
    pickle_.end_list();
    stacks_[stack] = pickle_.memoize();
  }

  void event(std::string_view action, uint64_t address, int64_t bytes, int32_t stream, int64_t time_ns,
             int32_t stack, int32_t tag) {
    pickle_.begin_dictionary();
    pickle_.item("action", action);
    pickle_.item("addr", static_cast<int64_t>(address));
    pickle_.item("size", bytes);
    pickle_.item("stream", static_cast<int64_t>(trace_.streams[static_cast<size_t>(stream)]));
    pickle_.item("time_us", time_ns / 1000);
    pickle_.item("user_metadata", trace_.names[static_cast<size_t>(tag)]);
    frames(stack);
    pickle_.end_dictionary();
  }

  void events() {
    pickle_.begin_list();
    auto next = trace_.device_events.begin();
    const auto device_events = [&](int64_t position) {
      for (; next != trace_.device_events.end() && next->position <= position; ++next) device_event(*next);
    };
    for (int64_t i = 0; i < std::ssize(trace_.events); ++i) {
      device_events(i);
      const TraceEvent& of = trace_.events[static_cast<size_t>(i)];
      const TraceBlock& block = trace_.block_facts[static_cast<size_t>(of.block)];
      if (of.bytes == 0 || block.is_part) continue;  // an unfolded arena
      const int32_t stack = of.allocates ? block.stack : 0;
      const auto put = [&](std::string_view action) {
        event(action, block.address, of.bytes, of.stream, of.time_ns, stack, of.tag);
      };
      put(of.allocates ? "alloc" : "free_requested");
      if (!of.allocates) put("free_completed");
    }
    device_events(std::ssize(trace_.events));
    pickle_.end_list();
  }

  void device_event(const DeviceEvent& of) {
    using Kind = DeviceEvent::Kind;
    if (of.kind == Kind::kReserve || of.kind == Kind::kUnreserve) {
      const bool reserves = of.kind == Kind::kReserve;
      event(reserves ? "segment_alloc" : "segment_free", of.address, of.bytes, of.stream, of.time_ns,
            of.stack, of.tag);
    } else if (of.kind == Kind::kOutOfMemory) {
      pickle_.begin_dictionary();
      pickle_.item("action", "oom");
      pickle_.item("device_free", of.free_bytes);
      pickle_.item("size", of.bytes);
      pickle_.item("stream", static_cast<int64_t>(trace_.streams[static_cast<size_t>(of.stream)]));
      pickle_.item("time_us", of.time_ns / 1000);
      frames(of.stack);
      pickle_.end_dictionary();
    }
  }

  // Writes the memory reserved at the end, with its live blocks and the gaps between them.
  void segments() {
    const auto end = std::ssize(trace_.events);
    std::vector<size_t> live;
    for (size_t block = 0; block < history_.lifetimes.size(); ++block) {
      if (history_.is_live(block, end) && !trace_.block_facts[block].is_part) live.push_back(block);
    }
    const auto address = [&](size_t block) { return trace_.block_facts[block].address; };
    std::ranges::sort(live, [&](size_t a, size_t b) { return address(a) < address(b); });
    pickle_.begin_list();
    for (const Segment& segment : history_.segments) {
      if (segment.held.end <= end) continue;
      const uint64_t stop = segment.address + static_cast<uint64_t>(segment.bytes);
      auto block = std::lower_bound(live.begin(), live.end(), segment.address,
                                    [&](size_t a, uint64_t at) { return address(a) < at; });
      int64_t allocated = 0;
      pickle_.begin_dictionary();
      pickle_.text("blocks");
      pickle_.begin_list();
      uint64_t at = segment.address;
      const auto gap_until = [&](uint64_t until) {
        if (until > at) put_block(at, static_cast<int64_t>(until - at), 0, "inactive", 0);
      };
      for (; block != live.end() && address(*block) < stop; ++block) {
        gap_until(address(*block));
        const int64_t bytes = history_.block_bytes(*block);
        put_block(address(*block), bytes, history_.bytes(*block), "active_allocated",
                  trace_.block_facts[*block].stack);
        at = address(*block) + static_cast<uint64_t>(bytes);
        allocated += bytes;
      }
      gap_until(stop);
      pickle_.end_list();
      pickle_.item("device", 0);
      pickle_.item("address", static_cast<int64_t>(segment.address));
      pickle_.item("total_size", segment.bytes);
      pickle_.item("allocated_size", allocated);
      pickle_.item("active_size", allocated);
      pickle_.item("stream", 0);
      pickle_.item("segment_type", segment.bytes > int64_t{2} << 20 ? "large" : "small");
      pickle_.end_dictionary();
    }
    pickle_.end_list();
  }

  void put_block(uint64_t address, int64_t bytes, int64_t requested, std::string_view state, int32_t stack) {
    pickle_.begin_dictionary();
    pickle_.item("address", static_cast<int64_t>(address));
    pickle_.item("size", bytes);
    pickle_.item("requested_size", requested);
    pickle_.item("state", state);
    frames(stack);
    pickle_.end_dictionary();
  }

  const History& history_;
  const Trace& trace_;
  PickleWriter pickle_;
  std::unordered_map<std::string, uint64_t> frames_;
  std::unordered_map<int32_t, uint64_t> stacks_;
};

}  // namespace

std::string memory_viz(const History& history) {
  return Snapshot(history).write();
}

}  // namespace headroom::report
