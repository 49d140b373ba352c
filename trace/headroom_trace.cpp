// Reads Headroom's own traces as TraceWriter writes them, and version 1, which had only one line of seven
// columns per event.
#include <fmt/format.h>

#include <array>
#include <cstddef>

#include "base/bytes.h"
#include "trace/formats.h"
#include "trace/trace_builder.h"
#include "trace/trace_format.h"

namespace headroom {
namespace {

// The name with its escapes decoded, in `scratch` if it has any.
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
      throw InvalidArgument("incomplete escape at the end of a name");
    }
  }
  return *scratch;
}

void require_columns(size_t count, size_t expected) {
  if (count != expected) throw InvalidArgument(fmt::format("{} columns, expected {}", count, expected));
}

Trace read_version_1(TraceInput& input) {
  TraceBuilder builder(input.path(), "Headroom trace");
  std::string_view line;
  if (!input.next_line(&line) || line != kTraceColumnsOfVersion1) {
    input.fail_at_line(fmt::format("the header is not '{}'", kTraceColumnsOfVersion1));
  }
  std::string op, tag;
  for_each_line(input, [&](std::string_view event) {
    std::string_view columns[7];
    require_columns(split_columns(event, columns, 7), 7);
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

class TraceLines {
 public:
  TraceLines(TraceInput& input, bool has_stacks)
      : builder_(input.path(), "Headroom trace"), has_stacks_(has_stacks) {}

  void add(std::string_view line) {
    const size_t count = split_columns(line, columns_.data(), columns_.size());
    if (columns_[0].size() != 1) throw InvalidArgument("a line must begin with one letter and a comma");
    const auto kind = static_cast<TraceLine>(columns_[0][0]);
    using Kind = DeviceEvent::Kind;
    switch (kind) {
      case TraceLine::kSetting:
        require_columns(count, 3);
        return builder_.add_setting(unescape(columns_[1], &scratch_), unescape(columns_[2], &value_));
      case TraceLine::kName:
        require_columns(count, 2);
        return add_name(unescape(columns_[1], &scratch_));
      case TraceLine::kAllocate: {
        require_columns(count, has_stacks_ ? 12 : 10);
        TraceContext context = user(4);
        context.block_bytes = parse_size(columns_[3]);
        if (has_stacks_) {
          context.module = name(10);
          context.stack = name(11);
        }
        return builder_.allocate(address(), parse_size(columns_[2]), context);
      }
      case TraceLine::kPart:
        require_columns(count, 9);
        return builder_.add_part(address(), parse_size(columns_[2]), parse_signed(columns_[3], "first"),
                                 parse_signed(columns_[4], "end"), names(5));
      case TraceLine::kFree:
        require_columns(count, 4);
        return builder_.free(address(), 0, {.stream = stream(2), .time_ns = time(3)});
      case TraceLine::kReserve:
      case TraceLine::kUnreserve:
        require_columns(count, 4);
        return builder_.add({.kind = kind == TraceLine::kReserve ? Kind::kReserve : Kind::kUnreserve,
                             .address = address(),
                             .bytes = parse_size(columns_[2])},
                            {.time_ns = time(3)});
      case TraceLine::kRetry:
        require_columns(count, 4);
        return builder_.add({.kind = Kind::kRetry, .bytes = parse_size(columns_[1])},
                            {.stream = stream(2), .time_ns = time(3)});
      case TraceLine::kOutOfMemory:
        require_columns(count, 8);
        return builder_.add({.kind = Kind::kOutOfMemory, .bytes = parse_size(columns_[1])}, user(2));
      case TraceLine::kDevice:
        require_columns(count, 6);
        return builder_.add({.kind = Kind::kDevice,
                             .bytes = parse_size(columns_[1]),
                             .free_bytes = parse_size(columns_[2]),
                             .process_bytes = parse_size(columns_[3]),
                             .others_bytes = parse_size(columns_[4])},
                            {.time_ns = time(5)});
      case TraceLine::kEmptyCache:
        require_columns(count, 2);
        return builder_.add({.kind = Kind::kEmptyCache}, {.time_ns = time(1)});
      case TraceLine::kMark: {
        require_columns(count, 4);
        const uint64_t phase = parse_unsigned(columns_[2], "phase");
        if (phase >= kStepPhaseNames.size()) throw InvalidArgument(fmt::format("unknown phase {}", phase));
        return builder_.mark(parse_signed(columns_[1], "step"), static_cast<StepPhase>(phase), time(3));
      }
    }
    throw InvalidArgument(fmt::format("unknown kind of line '{}'", quoted_column(columns_[0])));
  }

  Trace take(bool cut_off) {
    if (cut_off) builder_.is_cut_off();
    return builder_.take();
  }

 private:
  void add_name(std::string_view name) {
    name_bytes_ += name.size() + TraceBuilder::kBytesBesideName;
    if (name_bytes_ > TraceBuilder::kMaxNameBytes) {
      throw InvalidArgument(fmt::format("{} names take more than {}", names_.size(),
                                        format_bytes(static_cast<int64_t>(TraceBuilder::kMaxNameBytes))));
    }
    names_.emplace_back(name);
  }

  uint64_t address() const { return parse_hexadecimal(columns_[1], "address"); }
  uint64_t stream(size_t column) const { return parse_unsigned(columns_[column], "stream"); }
  int64_t time(size_t column) {
    const int64_t since = parse_signed(columns_[column], "time");
    if (__builtin_add_overflow(time_ns_, since, &time_ns_) || time_ns_ < 0) {
      throw InvalidArgument("the time is negative or above 2^63 ns");
    }
    return time_ns_;
  }
  std::string_view name(size_t column) const {
    const uint64_t number = parse_unsigned(columns_[column], "name");
    if (number >= names_.size()) throw InvalidArgument(fmt::format("name {} is not defined yet", number));
    return names_[number];
  }
  // op, tensor, source, category
  TraceContext names(size_t from) const {
    const uint64_t category = parse_unsigned(columns_[from + 3], "category");
    if (category >= kMemoryCategoryNames.size()) {
      throw InvalidArgument(fmt::format("unknown category {}", category));
    }
    return {.op = name(from),
            .tag = name(from + 1),
            .source = name(from + 2),
            .category = static_cast<MemoryCategory>(category)};
  }
  // stream, time, op, tensor, source, category
  TraceContext user(size_t from) {
    TraceContext context = names(from + 2);
    context.stream = stream(from);
    context.time_ns = time(from + 1);
    return context;
  }

  TraceBuilder builder_;
  const bool has_stacks_;
  std::array<std::string_view, 12> columns_;
  std::vector<std::string> names_ = {""};
  size_t name_bytes_ = 0;
  std::string scratch_, value_;
  int64_t time_ns_ = 0;
};

}  // namespace

Trace read_headroom_trace(TraceInput& input) {
  std::string_view line;
  input.next_line(&line);
  if (line == fmt::format("{}1", kTraceStart)) return read_version_1(input);
  const bool has_stacks = line == fmt::format("{}{}", kTraceStart, kTraceVersion);
  if (!has_stacks && line != fmt::format("{}2", kTraceStart) && line != fmt::format("{}3", kTraceStart)) {
    input.fail_at_line(fmt::format("unknown version: 1 to {} can be read", kTraceVersion));
  }
  TraceLines lines(input, has_stacks);
  bool cut_off = false;
  for_each_line(input, [&](std::string_view event) {
    cut_off = !input.line_ended();
    if (!cut_off) lines.add(event);
  });
  return lines.take(cut_off);
}

}  // namespace headroom
