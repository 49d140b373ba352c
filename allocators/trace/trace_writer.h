// Writes Headroom's own recording of a trace (docs/replay.md): a line per event, fast enough to be left on.
// Knows no allocator.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allocators/trace/name_table.h"
#include "allocators/trace/recording_format.h"
#include "allocators/trace/trace_builder.h"

namespace headroom {

// Not thread-safe. Takes memory from the system heap for names that it has not seen before, and for nothing
// else after its making.
class TraceWriter {
 public:
  // Throws InvalidArgument naming the file when it cannot be written.
  explicit TraceWriter(std::string path);
  // Writes what is left; what fails then is lost.
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // One event. `id` tells blocks that are live at once apart; where it is an address, views can draw a map.
  // Of names, which may hold any bytes, the first 1024 are written.
  void allocate(uint64_t id, int64_t bytes, const TraceContext& context) noexcept;
  void free(uint64_t id, const TraceContext& context) noexcept;
  // What lies in the block allocated last, see TracePart. Of the context names and category count.
  void part(uint64_t address, int64_t bytes, int64_t first, int64_t end,
            const TraceContext& context) noexcept;
  // An event beside those: kind, address and sizes are the event's, all else is the context's.
  void add(const DeviceEvent& event, const TraceContext& context) noexcept;
  void setting(std::string_view name, std::string_view value) noexcept;

  // Hands whole lines to the operating system, so that they outlive the process. A failed write ends the
  // recording; the program that is recorded goes on.
  void flush() noexcept;
  // Flushes, and throws InvalidArgument naming the file when this or an earlier write failed.
  void close();

 private:
  int32_t name(std::string_view text) noexcept;
  char* begin(RecordingLine line) noexcept;
  static char* put_names(char* to, const TraceContext& context, const int32_t (&names)[3]) noexcept;
  char* put_user(char* to, const TraceContext& context, const int32_t (&names)[3]) noexcept;
  char* put_time(char* to, int64_t time_ns) noexcept;
  void end(char* to, const TraceContext& context) noexcept;

  const std::string path_;
  int descriptor_ = -1;
  int error_ = 0;  // errno of the first write that failed
  std::vector<char> buffer_;
  char* end_ = nullptr;
  NameTable names_;
  int64_t last_ns_ = 0, flushed_ns_ = 0;
};

}  // namespace headroom
