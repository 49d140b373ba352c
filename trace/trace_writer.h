// Writes a trace in Headroom's own format (docs/replay.md), one line per event, fast enough to be left on.
// Knows no allocator.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/trace_builder.h"
#include "trace/trace_format.h"

namespace headroom {

// Not thread-safe. After construction it allocates only for new names.
class TraceWriter {
 public:
  // Throws InvalidArgument with the file's name when it cannot be created.
  explicit TraceWriter(std::string path);
  // Writes the rest; errors are lost, see close().
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Writes one event. `id` identifies a live block; if it is an address, views can draw a map. Names may hold
  // any bytes; only the first 1024 are written, and for a stack the innermost frames that fit into 16 KiB.
  void allocate(uint64_t id, int64_t bytes, const TraceContext& context) noexcept;
  void free(uint64_t id, const TraceContext& context) noexcept;
  // A part of the block allocated last, see TracePart. Uses names and category of the context.
  void part(uint64_t address, int64_t bytes, int64_t first, int64_t end,
            const TraceContext& context) noexcept;
  // Any other event: kind, address and sizes are the event's, the rest is the context's.
  void add(const DeviceEvent& event, const TraceContext& context) noexcept;
  // Later events belong to this step, which is at least that of the previous mark, and to this phase.
  void mark(int32_t step, StepPhase phase, int64_t time_ns) noexcept;
  void setting(std::string_view name, std::string_view value) noexcept;

  // Writes whole lines, so that they survive the process. A failed write ends the trace.
  void flush() noexcept;
  // Flushes; throws Error with the file's name when this or an earlier write failed.
  void close();

 private:
  int32_t name(std::string_view text) noexcept;
  int32_t stack(std::string_view text) noexcept;
  int32_t number_of(std::string_view text) noexcept;
  char* begin(TraceLine line) noexcept;
  static char* put_names(char* to, const TraceContext& context, const int32_t (&names)[3]) noexcept;
  char* put_user(char* to, const TraceContext& context, const int32_t (&names)[3]) noexcept;
  char* put_time(char* to, int64_t time_ns) noexcept;
  void end(char* to, int64_t time_ns) noexcept;

  const std::string path_;
  int descriptor_ = -1;
  int error_ = 0;  // errno of the first write that failed
  std::vector<char> buffer_;
  char* end_ = nullptr;
  NameTable names_;
  size_t name_bytes_ = 0;
  int64_t last_ns_ = 0, flushed_ns_ = 0, flush_after_ns_ = 1'000'000;
};

}  // namespace headroom
