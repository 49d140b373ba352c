// Reads the output of torch.cuda.memory._dump_snapshot: a pickle of {"segments": [...], "device_traces":
// [[...], ...]} with one list of events for each device, the oldest first
// (torch/csrc/cuda/memory_snapshot.cpp and torch/csrc/cuda/Module.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/offset_table.h"
#include "base/text.h"
#include "trace/categorize.h"
#include "trace/formats.h"
#include "trace/infer_marks.h"
#include "trace/pickle.h"
#include "trace/stack.h"
#include "trace/text_table.h"
#include "trace/trace_builder.h"

namespace headroom {
namespace {

using PickleValue = Pickle::Value;

struct Block {
  uint64_t address = 0;
  int64_t bytes = 0;
  uint64_t stream = 0;
  PickleValue frames = {};
  int64_t block_bytes = 0;  // as the segment has it; 0: unknown
};

// PyTorch rounds each block up to this.
constexpr int64_t kRoundBytes = 512;
// A server has fewer; a wrong file may claim any number.
constexpr int64_t kMaxDevices = 1024;
// Maximum bytes of all stacks together. Beyond it, only the frames of Python are kept.
constexpr size_t kMaxStackBytes = size_t{1} << 27;

int64_t rounded(int64_t bytes) {
  const bool fits = bytes > 0 && bytes <= Trace::kLargestBlockBytes - kRoundBytes;
  return fits ? (bytes + kRoundBytes - 1) / kRoundBytes * kRoundBytes : 0;
}

// Ranges of memory by address, as the driver gave and took them.
class MappedRanges {
 public:
  void add(uint64_t address, int64_t bytes) {
    if (bytes > 0) ranges_[address] = address + static_cast<uint64_t>(bytes);
  }
  void remove(uint64_t address, int64_t bytes) {
    const uint64_t end = address + static_cast<uint64_t>(std::max<int64_t>(bytes, 0));
    auto at = ranges_.upper_bound(address);
    if (at != ranges_.begin()) --at;
    while (at != ranges_.end() && at->first < end) {
      const auto [begin, stop] = *at;
      if (stop <= address) {
        ++at;
        continue;
      }
      at = ranges_.erase(at);
      if (begin < address) ranges_[begin] = address;
      if (stop > end) ranges_[end] = stop;
    }
  }
  const std::map<uint64_t, uint64_t>& ranges() const { return ranges_; }

 private:
  std::map<uint64_t, uint64_t> ranges_;  // begin -> end
};

enum class Action : uint8_t { kAllocate, kFree, kOther };

class DeviceHistory {
 public:
  DeviceHistory(const Pickle& pickle, int64_t number, PickleValue events)
      : pickle_(pickle), number_(number), events_(pickle.list(events)) {}

  bool has_blocks() const {
    return std::ranges::any_of(events_, [&](PickleValue event) { return action(event) != Action::kOther; });
  }

  // Returns true if there is anything to show without a history: live blocks, or a request that failed.
  bool has_moment() const {
    return std::ranges::any_of(
               events_,
               [&](PickleValue event) { return kind_of(event) == DeviceEvent::Kind::kOutOfMemory; }) ||
           !live_before().empty();
  }

  // The trace; throws InvalidArgument with the number of an impossible event.
  Trace build(TraceBuilder& builder) {
    const int64_t begin_ns = events_.empty() ? 0 : time_ns(events_.front());
    for (const auto& [begin, end] : reserved_before()) {
      builder.add({.kind = DeviceEvent::Kind::kReserve, .address = begin, .bytes = bytes_between(begin, end)},
                  {.time_ns = begin_ns});
    }
    std::vector<int32_t> stacks;  // by event of the trace
    for (const Block& block : live_before()) {
      TraceContext context = context_of(builder, block.frames, block.stream, begin_ns, block.bytes);
      context.block_bytes = std::max(context.block_bytes, block.block_bytes);
      builder.allocate(block.address, block.bytes, context);
      stacks.push_back(context.known.stack);
    }
    builder.begin_history();
    for (size_t i = 0; i < events_.size(); ++i) {
      const PickleValue event = events_[i];
      const Action what = action(event);
      const std::optional<DeviceEvent::Kind> kind = what == Action::kOther ? kind_of(event) : std::nullopt;
      if (what == Action::kOther && !kind) continue;
      try {
        TraceContext context =
            context_of(builder, pickle_.get(event, "frames"), static_cast<uint64_t>(number(event, "stream")),
                       time_ns(event), number(event, "size"));
        context.tag = pickle_.text(pickle_.get(event, "user_metadata"));
        if (kind) {
          add_device_event(builder, event, *kind, context);
          continue;
        }
        const auto address = static_cast<uint64_t>(number(event, "addr"));
        // Some versions give the rounded size with a free, so it is not compared.
        what == Action::kAllocate ? builder.allocate(address, block_bytes(event), context)
                                  : builder.free(address, 0, context);
        stacks.push_back(context.known.stack);
      } catch (const InvalidArgument& error) {
        throw InvalidArgument(fmt::format("device {}, event {}: {}", number_, i, error.what()));
      }
    }
    add_settings(builder);
    Trace trace = builder.take();
    trace.marks = infer_marks(trace, stacks);
    return trace;
  }

 private:
  TraceContext context_of(TraceBuilder& builder, PickleValue frames, uint64_t stream, int64_t time_ns,
                          int64_t bytes) {
    return {.stream = stream,
            .time_ns = time_ns,
            .block_bytes = rounded(bytes),
            .known = names_of(builder, pickle_.list(frames))};
  }

  static int64_t bytes_between(uint64_t begin, uint64_t end) { return static_cast<int64_t>(end - begin); }

  // Returns the summary of a stack, and its frames as text. Many events share a stack: each has a list of its
  // own, but equal frames are one dictionary.
  const TraceNames& names_of(TraceBuilder& builder, std::span<const PickleValue> frames) {
    static_assert(std::has_unique_object_representations_v<PickleValue>);
    const auto bytes_of = [](std::span<const PickleValue> values) {
      return std::string_view(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    };
    const uint32_t hash = TextTable::hash(bytes_of(frames));
    const int32_t known = stacks_.find(hash, bytes_of(frames), [&](int32_t number) {
      return bytes_of(frames_of_stack_[static_cast<size_t>(number)]);
    });
    if (known != TextTable::kNone) return names_of_stack_[static_cast<size_t>(known)];
    stack_.clear();
    for (const PickleValue frame : frames) {
      stack_.push_back({file_of(frame), number(frame, "line"), pickle_.text(pickle_.get(frame, "name"))});
    }
    stack_text_.clear();
    for (const StackFrame& frame : stack_) {
      if (stack_bytes_ > kMaxStackBytes && !frame.is_python()) continue;
      if (!stack_text_.empty()) stack_text_ += '\n';
      add_text(frame, stack_text_);
    }
    stack_bytes_ += stack_text_.size();
    const StackSummary summary = summarize(stack_);
    stacks_.add(hash);
    frames_of_stack_.push_back(frames);
    return names_of_stack_.emplace_back(TraceNames{.op = builder.name(summary.op),
                                                   .source = builder.name(summary.source),
                                                   .module = builder.name(summary.module),
                                                   .stack = builder.name(stack_text_)});
  }

  // With slashes, also from Windows.
  std::string_view file_of(PickleValue frame) {
    const std::string_view file = pickle_.text(pickle_.get(frame, "filename"));
    if (file.find(":\\") != 1) return file;
    std::string& changed = files_.emplace_back(file);
    std::ranges::replace(changed, '\\', '/');
    return changed;
  }

  // Driver calls of the allocator, for views; a replay ignores them.
  void add_device_event(TraceBuilder& builder, PickleValue event, DeviceEvent::Kind kind,
                        const TraceContext& context) const {
    builder.add({.kind = kind,
                 .address = static_cast<uint64_t>(number(event, "addr")),
                 .bytes = number(event, "size"),
                 .free_bytes = std::max<int64_t>(0, number(event, "device_free"))},
                context);
  }

  std::optional<DeviceEvent::Kind> kind_of(PickleValue event) const {
    static constexpr std::pair<std::string_view, DeviceEvent::Kind> kKinds[] = {
        {"segment_alloc", DeviceEvent::Kind::kReserve},  {"segment_map", DeviceEvent::Kind::kReserve},
        {"segment_free", DeviceEvent::Kind::kUnreserve}, {"segment_unmap", DeviceEvent::Kind::kUnreserve},
        {"oom", DeviceEvent::Kind::kOutOfMemory},
    };
    const std::string_view name = pickle_.text(pickle_.get(event, "action"));
    for (const auto& [action_name, kind] : kKinds) {
      if (action_name == name) return kind;
    }
    return std::nullopt;
  }

  // Returns the memory that the allocator had from the driver when the history began: the memory at the end,
  // undone event by event.
  std::map<uint64_t, uint64_t> reserved_before() const {
    MappedRanges mapped;
    for (const PickleValue segment : pickle_.list(pickle_.get(pickle_.root(), "segments"))) {
      if (number(segment, "device") != number_) continue;
      mapped.add(static_cast<uint64_t>(number(segment, "address")), size_of(segment, "total_size"));
    }
    for (auto event = events_.rbegin(); event != events_.rend(); ++event) {
      const std::optional<DeviceEvent::Kind> kind = kind_of(*event);
      const auto address = static_cast<uint64_t>(number(*event, "addr"));
      if (kind == DeviceEvent::Kind::kReserve) mapped.remove(address, size_of(*event, "size"));
      if (kind == DeviceEvent::Kind::kUnreserve) mapped.add(address, size_of(*event, "size"));
    }
    return mapped.ranges();
  }

  // A size that the builder will take.
  int64_t size_of(PickleValue dictionary, std::string_view key) const {
    return std::clamp<int64_t>(number(dictionary, key), 0, Trace::kLargestBlockBytes);
  }

  void add_settings(TraceBuilder& builder) const {
    const PickleValue settings = pickle_.get(pickle_.root(), "allocator_settings");
    if (settings.kind() != Pickle::Kind::kDictionary) return;
    const std::string_view text = pickle_.text(pickle_.get(settings, "PYTORCH_CUDA_ALLOC_CONF"));
    builder.add_setting("PYTORCH_CUDA_ALLOC_CONF", text.substr(0, 1024));  // empty: none was set
    if (number(settings, "expandable_segments") != 0) builder.add_setting("expandable_segments", "True");
  }

  // Until a free is completed other streams may use the block. A replay ignores all other actions.
  Action action(PickleValue event) const {
    const std::string_view name = pickle_.text(pickle_.get(event, "action"));
    return name == "alloc" ? Action::kAllocate : name == "free_completed" ? Action::kFree : Action::kOther;
  }

  int64_t number(PickleValue dictionary, std::string_view key) const {
    return pickle_.integer(pickle_.get(dictionary, key));
  }

  // A wrong file may say 1.5, 2^70 or nothing.
  int64_t block_bytes(PickleValue event) const {
    const PickleValue size = pickle_.get(event, "size");
    if (size.kind() != Pickle::Kind::kInteger && size.kind() != Pickle::Kind::kLargeInteger) {
      throw InvalidArgument(size.kind() == Pickle::Kind::kNone
                                ? "a block without a size"
                                : "the size of a block is not a whole number of 1 to 2^60 bytes");
    }
    return pickle_.integer(size);
  }

  int64_t time_ns(PickleValue event) const {
    const int64_t us = number(event, "time_us");
    return us > 0 && us < INT64_MAX / 1000 ? us * 1000 : 0;
  }

  // The history holds the last events and may start late: blocks that are freed but never allocated, or that
  // the segments still hold at the end, were there before.
  std::vector<Block> live_before() const {
    std::vector<Block> before;
    OffsetTable seen(1);  // addresses
    for (const PickleValue event : events_) {
      const Action what = action(event);
      if (what == Action::kOther) continue;
      const int64_t address = number(event, "addr");
      if (seen.find(address) != OffsetTable::kNone) continue;
      seen.prepare();
      seen.insert(address, 0);
      if (what == Action::kFree) {
        before.push_back({static_cast<uint64_t>(address),
                          block_bytes(event),
                          static_cast<uint64_t>(number(event, "stream")),
                          {},
                          0});
      }
    }
    add_held(seen, before);
    std::ranges::sort(before, [](const Block& a, const Block& b) { return a.address < b.address; });
    return before;
  }

  void add_held(const OffsetTable& seen, std::vector<Block>& before) const {
    // Blocks that the history lacks have the sizes that requests are rounded to.
    const bool is_moment = !has_blocks();
    for (const PickleValue segment : pickle_.list(pickle_.get(pickle_.root(), "segments"))) {
      if (number(segment, "device") != number_) continue;
      auto next = static_cast<uint64_t>(number(segment, "address"));
      for (const PickleValue block : pickle_.list(pickle_.get(segment, "blocks"))) {
        const int64_t size = number(block, "size");
        const auto address =
            static_cast<uint64_t>(pickle_.integer(pickle_.get(block, "address"), static_cast<int64_t>(next)));
        next = address + static_cast<uint64_t>(size);
        const int64_t requested = pickle_.integer(pickle_.get(block, "requested_size"), size);
        // "active_allocated", or "active_awaiting_free" while another stream uses it.
        const bool active = pickle_.text(pickle_.get(block, "state")).starts_with("active");
        if (!active || requested <= 0 || seen.find(static_cast<int64_t>(address)) != OffsetTable::kNone)
          continue;
        before.push_back({address, requested, static_cast<uint64_t>(number(segment, "stream")),
                          pickle_.get(block, "frames"), is_moment ? size : 0});
      }
    }
  }

  const Pickle& pickle_;
  const int64_t number_;
  const std::span<const PickleValue> events_;
  TextTable stacks_;  // by their frames
  std::vector<std::span<const PickleValue>> frames_of_stack_;
  std::vector<TraceNames> names_of_stack_;
  size_t stack_bytes_ = 0;
  std::vector<StackFrame> stack_;  // frames of one event
  std::string stack_text_;
  std::deque<std::string> files_;
};

}  // namespace

std::vector<Trace> read_torch_snapshot(TraceInput& input, Moments moments) {
  const Pickle pickle(input);
  const PickleValue traced = pickle.get(pickle.root(), "device_traces");
  const PickleValue segments = pickle.get(pickle.root(), "segments");
  if (traced.kind() != Pickle::Kind::kList && segments.kind() != Pickle::Kind::kList)
    input.fail("a pickle, but not a PyTorch memory snapshot");
  // Histories by device. If there are none, as with enabled="state", only the segments name a device.
  const std::span<const PickleValue> histories = pickle.list(traced);
  std::vector<PickleValue> devices(histories.begin(), histories.end());
  for (const PickleValue segment : pickle.list(segments)) {
    const int64_t number = pickle.integer(pickle.get(segment, "device"));
    if (number >= std::ssize(devices) && number < kMaxDevices)
      devices.resize(static_cast<size_t>(number) + 1);
  }
  std::vector<Trace> traces;
  const auto read_where = [&](bool (DeviceHistory::*holds)() const) {
    for (int64_t number = 0; number < std::ssize(devices); ++number) {
      DeviceHistory device(pickle, number, devices[static_cast<size_t>(number)]);
      if (!(device.*holds)()) continue;
      TraceBuilder builder(fmt::format("{}#device{}", input.path(), number), "PyTorch memory snapshot");
      traces.push_back(device.build(builder));
    }
  };
  try {
    read_where(&DeviceHistory::has_blocks);
    if (traces.empty()) read_where(&DeviceHistory::has_moment);
  } catch (const InvalidArgument& error) {
    input.fail(error.what());
  }
  if (traces.empty()) {
    input.fail(
        "the snapshot has no history and no live blocks: call torch.cuda.memory._record_memory_history() "
        "before the work, and dump while the tensors live");
  }
  if (moments == Moments::kRefuse && is_moment(traces.front())) {
    input.fail(fmt::format(
        "the snapshot has no history, only one moment: record with "
        "torch.cuda.memory._record_memory_history(enabled=\"all\"); headroom report {} shows the moment",
        shell_word(input.path())));
  }
  if (traces.size() == 1) traces.front().name = input.path();
  return traces;
}

}  // namespace headroom
