// Reads the log of RMM's logging adaptor (logging_resource_adaptor.hpp): one line per call of any thread.
#include <fmt/format.h>

#include <cstddef>

#include "base/text.h"
#include "trace/formats.h"
#include "trace/trace_builder.h"

namespace headroom {
namespace {

constexpr int64_t kDayNs = int64_t{86'400} * 1'000'000'000;

// "23:59:59.123456" as nanoseconds of its day.
int64_t parse_time_of_day(std::string_view text) {
  const auto number = [&](size_t at, size_t length, int limit) {
    const int value = parse_number<int>(text.substr(at, length)).value_or(-1);
    return value >= 0 && value < limit ? value : -1;
  };
  if (text.size() == 15 && text[2] == ':' && text[5] == ':' && text[8] == '.') {
    const int64_t hours = number(0, 2, 24), minutes = number(3, 2, 60), seconds = number(6, 2, 61);
    const int64_t us = number(9, 6, 1'000'000);
    if (hours >= 0 && minutes >= 0 && seconds >= 0 && us >= 0) {
      return (((hours * 60 + minutes) * 60 + seconds) * 1'000'000 + us) * 1000;
    }
  }
  throw InvalidArgument("the time is not HH:MM:SS.uuuuuu");
}

}  // namespace

Trace read_rmm_log(TraceInput& input) {
  TraceBuilder builder(input.path(), "RMM log");
  std::string_view head;
  input.next_line(&head);
  if (head != kRmmHeader) input.fail_at_line(fmt::format("the header is not '{}'", kRmmHeader));
  int64_t day_ns = 0, last_ns = 0;
  for_each_line(input, [&](std::string_view line) {
    if (line.empty()) return;
    std::string_view columns[6];
    const size_t count = split_columns(line, columns, 6);
    if (count != 6) throw InvalidArgument(fmt::format("{} columns, expected 6", count));
    const auto [thread, time, action, pointer, size, stream] = columns;
    TraceContext context;
    context.time_ns = parse_time_of_day(time) + day_ns;
    // Threads log slightly out of order; a step back of half a day means midnight.
    if (context.time_ns < last_ns - kDayNs / 2) {
      day_ns += kDayNs;
      context.time_ns += kDayNs;
    }
    last_ns = context.time_ns;
    context.stream = parse_hexadecimal(stream, "stream");
    const int64_t bytes = parse_size(size);
    if (action == "allocate failure") return;  // RMM's own replay also skips these
    const bool allocates = action == "allocate";
    if (!allocates && action != "free") throw InvalidArgument("the action is neither allocate nor free");
    const uint64_t id = pointer == "(nil)" ? 0 : parse_hexadecimal(pointer, "pointer");
    if (id == 0 && bytes == 0) return;  // an empty buffer
    if (allocates) {
      builder.allocate(id, bytes, context);
    } else {
      builder.free(id, bytes, context);
    }
  });
  return builder.take();
}

}  // namespace headroom
