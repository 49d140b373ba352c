// What torch.cuda.memory._dump_snapshot writes: a pickle of {"segments": [...], "device_traces": [[...],
// ...]} with one list of events for each device, the oldest first (torch/csrc/cuda/memory_snapshot.cpp and
// torch/csrc/cuda/Module.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>

#include "allocators/trace/formats.h"
#include "allocators/trace/pickle.h"
#include "allocators/trace/trace_builder.h"

namespace headroom {
namespace {

using Value = Pickle::Value;

struct Block {
  uint64_t address = 0;
  int64_t bytes = 0;
  uint64_t stream = 0;
};

enum class Action : uint8_t { kAllocate, kFree, kOther };

class DeviceHistory {
 public:
  DeviceHistory(const Pickle& pickle, int64_t number, Value events)
      : pickle_(pickle), number_(number), events_(pickle.list(events)) {}

  bool has_blocks() const {
    return std::any_of(events_.begin(), events_.end(),
                       [&](Value event) { return action(event) != Action::kOther; });
  }

  // Adds all events; throws InvalidArgument with the number of an impossible one.
  void build(TraceBuilder& builder) const {
    for (const Block& block : live_before()) {
      builder.allocate(block.address, block.bytes, {.stream = block.stream});
    }
    for (size_t i = 0; i < events_.size(); ++i) {
      const Value event = events_[i];
      const Action what = action(event);
      const Value frame = first(pickle_.get(event, "frames"));
      const std::string source = place_of(frame);
      const TraceContext context = {.stream = static_cast<uint64_t>(number(event, "stream")),
                                    .time_ns = time_ns(event),
                                    .op = pickle_.text(pickle_.get(frame, "name")),
                                    .tag = pickle_.text(pickle_.get(event, "user_metadata")),
                                    .source = source};
      const auto address = static_cast<uint64_t>(number(event, "addr"));
      try {
        if (what == Action::kOther) {
          add_device_event(builder, event, context);
          continue;
        }
        // Some versions give the rounded size with a free, so it is not compared.
        what == Action::kAllocate ? builder.allocate(address, number(event, "size"), context)
                                  : builder.free(address, 0, context);
      } catch (const InvalidArgument& error) {
        throw InvalidArgument(fmt::format("device {}, event {}: {}", number_, i, error.what()));
      }
    }
  }

 private:
  // Driver calls of the allocator, for views; a replay ignores them.
  void add_device_event(TraceBuilder& builder, Value event, const TraceContext& context) const {
    static constexpr std::pair<std::string_view, DeviceEvent::Kind> kKinds[] = {
        {"segment_alloc", DeviceEvent::Kind::kReserve},  {"segment_map", DeviceEvent::Kind::kReserve},
        {"segment_free", DeviceEvent::Kind::kUnreserve}, {"segment_unmap", DeviceEvent::Kind::kUnreserve},
        {"oom", DeviceEvent::Kind::kOutOfMemory},
    };
    const std::string_view name = pickle_.text(pickle_.get(event, "action"));
    for (const auto& [action_name, kind] : kKinds) {
      if (action_name != name) continue;
      builder.add({.kind = kind,
                   .address = static_cast<uint64_t>(number(event, "addr")),
                   .bytes = number(event, "size")},
                  context);
    }
  }

  // "/src/train.py:42"; empty without frames.
  std::string place_of(Value frame) const {
    const std::string_view file = pickle_.text(pickle_.get(frame, "filename"));
    return file.empty() ? "" : fmt::format("{}:{}", file, number(frame, "line"));
  }

  // Until a free is completed other streams may use the block. A replay ignores all other actions.
  Action action(Value event) const {
    const std::string_view name = pickle_.text(pickle_.get(event, "action"));
    return name == "alloc" ? Action::kAllocate : name == "free_completed" ? Action::kFree : Action::kOther;
  }

  int64_t number(Value dictionary, std::string_view key) const {
    return pickle_.integer(pickle_.get(dictionary, key));
  }

  Value first(Value list) const {
    const std::vector<Value>& values = pickle_.list(list);
    return values.empty() ? Value{} : values.front();
  }

  int64_t time_ns(Value event) const {
    const int64_t us = number(event, "time_us");
    return us > 0 && us < INT64_MAX / 1000 ? us * 1000 : 0;
  }

  // The history holds the last events and may start late: blocks that are freed but never allocated, or that
  // the segments still hold at the end, were there before.
  std::vector<Block> live_before() const {
    std::vector<Block> before;
    std::unordered_map<uint64_t, bool> seen;  // address -> live
    for (const Value event : events_) {
      const Action what = action(event);
      if (what == Action::kOther) continue;
      const auto address = static_cast<uint64_t>(number(event, "addr"));
      const auto [at, is_new] = seen.try_emplace(address, false);
      if (what == Action::kFree && is_new) {
        before.push_back({address, number(event, "size"), static_cast<uint64_t>(number(event, "stream"))});
      }
      at->second = what == Action::kAllocate;
    }
    add_held(seen, before);
    std::sort(before.begin(), before.end(),
              [](const Block& a, const Block& b) { return a.address < b.address; });
    return before;
  }

  void add_held(const std::unordered_map<uint64_t, bool>& seen, std::vector<Block>& before) const {
    for (const Value segment : pickle_.list(pickle_.get(pickle_.root(), "segments"))) {
      if (number(segment, "device") != number_) continue;
      auto next = static_cast<uint64_t>(number(segment, "address"));
      for (const Value block : pickle_.list(pickle_.get(segment, "blocks"))) {
        const int64_t size = number(block, "size");
        const auto address =
            static_cast<uint64_t>(pickle_.integer(pickle_.get(block, "address"), static_cast<int64_t>(next)));
        next = address + static_cast<uint64_t>(size);
        const int64_t requested = pickle_.integer(pickle_.get(block, "requested_size"), size);
        // "active_allocated", or "active_awaiting_free" while another stream uses it.
        const bool active = pickle_.text(pickle_.get(block, "state")).starts_with("active");
        if (!active || requested <= 0 || seen.contains(address)) continue;
        before.push_back({address, requested, static_cast<uint64_t>(number(segment, "stream"))});
      }
    }
  }

  const Pickle& pickle_;
  const int64_t number_;
  const std::vector<Value>& events_;
};

}  // namespace

std::vector<Trace> read_torch_snapshot(TraceInput& input) {
  const Pickle pickle(input);
  const Value devices = pickle.get(pickle.root(), "device_traces");
  if (devices.kind != Pickle::Kind::kList) input.fail("a pickle, but not a PyTorch memory snapshot");
  std::vector<Trace> traces;
  int64_t number = -1;
  try {
    for (const Value events : pickle.list(devices)) {
      const DeviceHistory device(pickle, ++number, events);
      if (!device.has_blocks()) continue;
      TraceBuilder builder(fmt::format("{}#device{}", input.path(), number), "PyTorch memory snapshot");
      device.build(builder);
      traces.push_back(builder.take());
    }
  } catch (const InvalidArgument& error) {
    input.fail(error.what());
  }
  if (traces.empty()) {
    input.fail(
        "the snapshot has no history: call torch.cuda.memory._record_memory_history() before the work");
  }
  if (traces.size() == 1) traces.front().name = input.path();
  return traces;
}

}  // namespace headroom
