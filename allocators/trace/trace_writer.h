// Writes Headroom's own recording of a trace (docs/replay.md): a line per event, fast enough to be left on.
// Knows no allocator.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allocators/trace/trace_builder.h"

namespace headroom {

// Not thread-safe. Takes nothing from the system heap after its making.
class TraceWriter {
 public:
  // Throws InvalidArgument naming the file when it cannot be written.
  explicit TraceWriter(std::string path);
  // Writes what is left; what fails then is lost.
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // One event. `id` tells blocks that are live at once apart: an address will do. Of names, which may hold
  // any bytes, the first 1024 are written.
  void allocate(uint64_t id, int64_t bytes, const TraceContext& context) noexcept;
  void free(uint64_t id, int64_t bytes, const TraceContext& context) noexcept;
  // Hands whole lines to the operating system, so that they outlive the process. A failed write ends the
  // recording; the program that is recorded goes on.
  void flush() noexcept;
  // Flushes, and throws InvalidArgument naming the file when this or an earlier write failed.
  void close();

 private:
  void add(char op, uint64_t id, int64_t bytes, const TraceContext& context) noexcept;

  const std::string path_;
  int descriptor_ = -1;
  int error_ = 0;  // errno of the first write that failed
  std::vector<char> buffer_;
  char* end_ = nullptr;
};

}  // namespace headroom
