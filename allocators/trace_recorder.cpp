#include "allocators/trace_recorder.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "allocators/observer.h"
#include "base/errors.h"
#include "base/lost_output.h"
#include "trace/trace_builder.h"
#include "trace/trace_writer.h"

namespace headroom {
namespace {

DeviceEvent device_event_of(const AllocatorEvent& event) {
  using Kind = AllocatorEvent::Kind;
  DeviceEvent written{.address = reinterpret_cast<uint64_t>(event.pointer), .bytes = event.requested_bytes};
  if (event.kind == Kind::kDevice) {
    written.kind = DeviceEvent::Kind::kDevice;
    written.bytes = event.memory->total;
    written.free_bytes = event.memory->free;
    written.process_bytes = event.memory->process;
    written.others_bytes = event.memory->others;
  } else {
    written.kind = event.kind == Kind::kReserve     ? DeviceEvent::Kind::kReserve
                   : event.kind == Kind::kUnreserve ? DeviceEvent::Kind::kUnreserve
                   : event.kind == Kind::kRetry     ? DeviceEvent::Kind::kRetry
                                                    : DeviceEvent::Kind::kOutOfMemory;
  }
  return written;
}

TraceContext context_of(const AllocatorEvent& event, int64_t time_ns) {
  return {.stream = reinterpret_cast<uint64_t>(event.stream.handle),
          .time_ns = time_ns,
          .op = event.user.op,
          .tag = event.user.tensor,
          .source = event.user.source,
          .category = event.user.category,
          .block_bytes = event.block_bytes};
}

// Reports an incomplete trace on stderr and in the exit code, because an observer cannot throw.
class ReportingWriter {
 public:
  explicit ReportingWriter(const std::string& path) : writer_(path) {}
  ~ReportingWriter() {
    try {
      writer_.close();
    } catch (const Error& error) {
      std::fputs(fmt::format("note: the trace is incomplete: {}\n", error.what()).c_str(), stderr);
      note_lost_output();
    }
  }
  ReportingWriter(const ReportingWriter&) = delete;
  ReportingWriter& operator=(const ReportingWriter&) = delete;
  TraceWriter& operator*() { return writer_; }

 private:
  TraceWriter writer_;
};

}  // namespace

std::function<void(const AllocatorEvent&)> trace_recorder(const std::string& path,
                                                          const TraceSettings& settings) {
  using Clock = std::chrono::steady_clock;
  auto shared = std::make_shared<ReportingWriter>(path);
  for (const auto& [name, value] : settings) (**shared).setting(name, value);
  return [shared = std::move(shared), start = Clock::now()](const AllocatorEvent& event) {
    TraceWriter& writer = **shared;
    const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
    const TraceContext context = context_of(event, since.count());
    if (event.kind == AllocatorEvent::Kind::kAllocate) {
      writer.allocate(reinterpret_cast<uint64_t>(event.pointer), event.requested_bytes, context);
    } else if (event.kind == AllocatorEvent::Kind::kDeallocate) {
      writer.free(reinterpret_cast<uint64_t>(event.pointer), context);
    } else if (event.kind == AllocatorEvent::Kind::kPart) {
      writer.part(reinterpret_cast<uint64_t>(event.pointer), event.requested_bytes, event.first, event.end,
                  context);
    } else {
      writer.add(device_event_of(event), context);
    }
  };
}

std::function<void(const AllocatorEvent&)> trace_recorder(TraceBuilder& builder) {
  return [&builder](const AllocatorEvent& event) {
    using Kind = AllocatorEvent::Kind;
    const auto block = reinterpret_cast<uint64_t>(event.pointer);
    const TraceContext context = context_of(event, 0);
    if (event.kind == Kind::kAllocate) {
      builder.allocate(block, event.requested_bytes, context);
    } else if (event.kind == Kind::kDeallocate) {
      builder.free(block, 0, context);
    } else if (event.kind == Kind::kPart) {
      builder.add_part(block, event.requested_bytes, event.first, event.end, context);
    } else {
      builder.add(device_event_of(event), context);
    }
  };
}

}  // namespace headroom
