#include "allocators/recorder.h"

#include <chrono>
#include <memory>

#include "allocators/trace/trace_writer.h"

namespace headroom {

std::function<void(const AllocatorEvent&)> recorder(const std::string& path) {
  using Clock = std::chrono::steady_clock;
  return [writer = std::make_shared<TraceWriter>(path), start = Clock::now()](const AllocatorEvent& event) {
    using Kind = AllocatorEvent::Kind;
    if (event.kind == Kind::kOutOfMemory) return;
    const auto id = reinterpret_cast<uint64_t>(event.pointer);
    const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
    const TraceContext context{reinterpret_cast<uint64_t>(event.stream.handle), since.count(), event.user.op,
                               event.user.tensor};
    if (event.kind == Kind::kAllocate) {
      writer->allocate(id, event.requested_bytes, context);
    } else {
      writer->free(id, event.requested_bytes, context);
    }
  };
}

}  // namespace headroom
