#include "trace/trace_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/errors.h"

namespace headroom {
namespace {

// An event takes 40 bytes and its block's facts 32, so any file stops at 4 GiB; TraceInput stops a small one
// before.
constexpr size_t kMaxEvents = size_t{1} << 26;
constexpr size_t kMaxDeviceEvents = size_t{1} << 24;
constexpr size_t kMaxParts = size_t{1} << 22;
constexpr size_t kMaxMarks = size_t{1} << 22;
constexpr size_t kMaxSettings = 256;
constexpr size_t kMaxStreams = size_t{1} << 16;
// Eight of the largest blocks would overflow a sum.
constexpr int64_t kMaxLiveBytes = int64_t{1} << 62;

}  // namespace

TraceBuilder::TraceBuilder(std::string name, std::string format) {
  trace_.name = std::move(name);
  trace_.format = std::move(format);
  streams_.emplace(0, 0);
}

void TraceBuilder::allocate(uint64_t id, int64_t bytes, const TraceContext& context) {
  if (bytes <= 0 || bytes > Trace::kLargestBlockBytes) {
    throw InvalidArgument(fmt::format("a block of {} bytes: blocks have 1 to 2^60 bytes", bytes));
  }
  const int64_t taken_bytes = std::max(bytes, context.block_bytes);
  if (taken_bytes > Trace::kLargestBlockBytes) {
    throw InvalidArgument(fmt::format("a block of {} bytes in one of {}: at most 2^60", bytes, taken_bytes));
  }
  if (taken_bytes > kMaxLiveBytes - taken_bytes_) {
    throw InvalidArgument("more than 2^62 bytes are live at once");
  }
  int32_t position = number_of_id_.find(static_cast<int64_t>(id));
  if (position == OffsetTable::kNone) {
    position = static_cast<int32_t>(blocks_.size());
    number_of_id_.prepare();
    blocks_.emplace_back();
    number_of_id_.insert(static_cast<int64_t>(id), position);
  }
  Block& block = blocks_[static_cast<size_t>(position)];
  if (block.live) throw InvalidArgument(fmt::format("block {} is allocated again while it is live", id));
  block = {static_cast<int32_t>(trace_.blocks), true, bytes, taken_bytes};
  add(true, block, context);
  trace_.block_facts.push_back({.address = id,
                                .block_bytes = context.block_bytes,
                                .source = name(context.source, context.known.source),
                                .module = name(context.module, context.known.module),
                                .stack = name(context.stack, context.known.stack),
                                .category = context.category});
  ++trace_.blocks;
  live_bytes_ += bytes;
  taken_bytes_ += taken_bytes;
  if (live_bytes_ > trace_.peak_bytes) {
    trace_.peak_bytes = live_bytes_;
    trace_.peak_event = static_cast<int64_t>(trace_.events.size()) - 1;
  }
}

void TraceBuilder::free(uint64_t id, int64_t bytes, const TraceContext& context) {
  const int32_t position = number_of_id_.find(static_cast<int64_t>(id));
  if (position == OffsetTable::kNone)
    throw InvalidArgument(fmt::format("block {} is freed, but was never allocated", id));
  Block& block = blocks_[static_cast<size_t>(position)];
  if (!block.live) throw InvalidArgument(fmt::format("block {} is freed twice", id));
  if (bytes != 0 && bytes != block.bytes) {
    throw InvalidArgument(fmt::format("block {} of {} bytes is freed as one of {}", id, block.bytes, bytes));
  }
  add(false, block, context);
  block.live = false;
  live_bytes_ -= block.bytes;
  taken_bytes_ -= block.taken_bytes;
}

void TraceBuilder::add_part(uint64_t address, int64_t bytes, int64_t first, int64_t end,
                            const TraceContext& context) {
  if (trace_.events.empty() || !trace_.events.back().allocates) {
    throw InvalidArgument("a part must follow the allocation of its block");
  }
  if (trace_.parts.size() == kMaxParts) throw InvalidArgument(fmt::format("more than {} parts", kMaxParts));
  const TraceEvent& block = trace_.events.back();
  const uint64_t begin = trace_.block_facts.back().address;
  const bool is_inside = bytes > 0 && bytes <= block.bytes && address >= begin &&
                         address - begin <= static_cast<uint64_t>(block.bytes - bytes);
  if (!is_inside) {
    throw InvalidArgument(fmt::format("a part of {} bytes at {:x} is not inside the block of {} at {:x}",
                                      bytes, address, block.bytes, begin));
  }
  if (first < 0 || end <= first) throw InvalidArgument(fmt::format("a part in [{}, {})", first, end));
  trace_.parts.push_back({.block = block.block,
                          .category = context.category,
                          .op = name(context.op, context.known.op),
                          .tag = name(context.tag, context.known.tag),
                          .source = name(context.source, context.known.source),
                          .address = address,
                          .bytes = bytes,
                          .first = first,
                          .end = end});
}

void TraceBuilder::add(DeviceEvent event, const TraceContext& context) {
  if (trace_.device_events.size() == kMaxDeviceEvents) {
    throw InvalidArgument(fmt::format("more than {} events of the device", kMaxDeviceEvents));
  }
  for (const int64_t bytes : {event.bytes, event.free_bytes, event.process_bytes, event.others_bytes}) {
    if (bytes < 0 || bytes > Trace::kLargestBlockBytes) {
      throw InvalidArgument(fmt::format("{} bytes: must be 0 to 2^60", bytes));
    }
  }
  event.position = static_cast<int64_t>(trace_.events.size());
  event.time_ns = context.time_ns;
  event.stream = stream_index(context.stream);
  event.op = name(context.op, context.known.op);
  event.tag = name(context.tag, context.known.tag);
  event.source = name(context.source, context.known.source);
  event.module = name(context.module, context.known.module);
  event.stack = name(context.stack, context.known.stack);
  event.category = context.category;
  trace_.device_events.push_back(event);
}

void TraceBuilder::mark(int64_t step, StepPhase phase, int64_t time_ns) {
  if (trace_.marks.size() == kMaxMarks) throw InvalidArgument(fmt::format("more than {} marks", kMaxMarks));
  if (step < 0 || step > INT32_MAX) throw InvalidArgument(fmt::format("step {}: must be 0 to 2^31-1", step));
  if (!trace_.marks.empty() && step < trace_.marks.back().step) {
    throw InvalidArgument(fmt::format("step {} after step {}", step, trace_.marks.back().step));
  }
  trace_.marks.push_back({.position = static_cast<int64_t>(trace_.events.size()),
                          .step = static_cast<int32_t>(step),
                          .phase = phase,
                          .time_ns = time_ns});
}

void TraceBuilder::add_setting(std::string_view name, std::string_view value) {
  if (trace_.settings.size() == kMaxSettings) {
    throw InvalidArgument(fmt::format("more than {} settings", kMaxSettings));
  }
  trace_.settings.emplace_back(name, value);
}

bool TraceBuilder::is_live(uint64_t id) const {
  const int32_t position = number_of_id_.find(static_cast<int64_t>(id));
  return position != OffsetTable::kNone && blocks_[static_cast<size_t>(position)].live;
}

void TraceBuilder::add(bool allocates, const Block& block, const TraceContext& context) {
  if (trace_.events.size() == kMaxEvents) {
    throw InvalidArgument(fmt::format("more than {} events", kMaxEvents));
  }
  trace_.events.push_back({.allocates = allocates,
                           .block = block.number,
                           .bytes = block.bytes,
                           .stream = stream_index(context.stream),
                           .op = name(context.op, context.known.op),
                           .tag = name(context.tag, context.known.tag),
                           .time_ns = context.time_ns});
}

int32_t TraceBuilder::name(std::string_view text) {
  if (text.empty()) return 0;
  const uint32_t hash = TextTable::hash(text);
  const auto text_of = [&](int32_t number) -> std::string_view {
    return trace_.names[static_cast<size_t>(number) + 1];
  };
  if (const int32_t known = names_.find(hash, text, text_of); known != TextTable::kNone) return known + 1;
  name_bytes_ += text.size() + kBytesBesideName;
  if (name_bytes_ > kMaxNameBytes) {
    throw InvalidArgument(fmt::format("{} names take more than {}", trace_.names.size(),
                                      format_bytes(static_cast<int64_t>(kMaxNameBytes))));
  }
  trace_.names.emplace_back(text);
  return names_.add(hash) + 1;
}

int32_t TraceBuilder::stream_index(uint64_t handle) {
  const auto [at, added] = streams_.try_emplace(handle, static_cast<int32_t>(trace_.streams.size()));
  if (added) {
    if (streams_.size() > kMaxStreams)
      throw InvalidArgument(fmt::format("more than {} streams", kMaxStreams));
    trace_.streams.push_back(handle);
  }
  return at->second;
}

}  // namespace headroom
