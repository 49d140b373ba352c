// Headroom's own recording, as TraceWriter writes it.
#include <fmt/format.h>

#include "allocators/trace/formats.h"
#include "allocators/trace/recording_format.h"
#include "allocators/trace/trace_builder.h"

namespace headroom {
namespace {

// The name without its escapes, in `scratch` if it has any.
std::string_view unescape(std::string_view name, std::string* scratch) {
  if (name.find('%') == std::string_view::npos) return name;
  scratch->clear();
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '%') {
      *scratch += name[i];
    } else if (i + 2 < name.size()) {
      *scratch += static_cast<char>(parse_hexadecimal(name.substr(i + 1, 2), "escape"));
      i += 2;
    } else {
      throw InvalidArgument("the last escape is cut off");
    }
  }
  return *scratch;
}

}  // namespace

Trace read_recording(TraceInput& input) {
  TraceBuilder builder(input.path(), "Headroom recording");
  std::string_view line;
  input.next_line(&line);
  if (line != fmt::format("{}{}", kRecordingStart, kRecordingVersion)) {
    input.fail_at_line(fmt::format("a recording of version {} is needed", kRecordingVersion));
  }
  if (!input.next_line(&line) || line != kRecordingColumns) {
    input.fail_at_line(fmt::format("the head is not '{}'", kRecordingColumns));
  }
  std::string op, tag;
  for_each_line(input, [&](std::string_view event) {
    constexpr size_t kColumns = 7;
    std::string_view columns[kColumns];
    const size_t count = split_columns(event, columns, kColumns);
    if (count != kColumns) throw InvalidArgument(fmt::format("{} columns, expected {}", count, kColumns));
    const bool allocates = columns[0] == "a";
    if (!allocates && columns[0] != "f") throw InvalidArgument("op is neither 'a' nor 'f'");
    const uint64_t id = parse_unsigned(columns[1], "id");
    const int64_t bytes = parse_size(columns[2]);
    const TraceContext context = {.stream = parse_unsigned(columns[3], "stream"),
                                  .time_ns = parse_size(columns[4]),
                                  .op = unescape(columns[5], &op),
                                  .tag = unescape(columns[6], &tag)};
    if (allocates) {
      builder.allocate(id, bytes, context);
    } else {
      builder.free(id, bytes, context);
    }
  });
  return builder.take();
}

}  // namespace headroom
