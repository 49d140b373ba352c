// Reads lines `a,ID,BYTES` and `f,ID[,BYTES]`, with or without the header `op,id,bytes`.
#include <fmt/format.h>

#include <cstddef>

#include "trace/formats.h"
#include "trace/trace_builder.h"

namespace headroom {

Trace read_csv_trace(TraceInput& input) {
  TraceBuilder builder(input.path(), "CSV");
  builder.has_no_addresses();
  bool first = true;
  for_each_line(input, [&](std::string_view line) {
    const bool is_header = first && line == kCsvHeader;
    first = false;
    if (is_header || line.empty()) return;
    std::string_view columns[3];
    const size_t count = split_columns(line, columns, 3);
    const bool allocates = columns[0] == "a";
    if (!allocates && columns[0] != "f") throw InvalidArgument("expected 'a,ID,BYTES' or 'f,ID'");
    if (count > 3 || count < (allocates ? 3 : 2)) {
      throw InvalidArgument(fmt::format("{} columns, expected {}", count, allocates ? "3" : "2 or 3"));
    }
    const uint64_t id = parse_unsigned(columns[1], "id");
    const bool sized = count == 3 && !columns[2].empty();
    if (allocates) {
      builder.allocate(id, parse_size(columns[2]));
    } else {
      builder.free(id, sized ? parse_size(columns[2]) : 0);
    }
  });
  return builder.take();
}

}  // namespace headroom
