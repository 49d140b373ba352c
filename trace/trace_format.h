// The text format of Headroom's own traces, shared by writer and reader; docs/replay.md describes it.
#pragma once

#include <cstddef>
#include <string_view>

namespace headroom {

// The first line: this, then the version.
inline constexpr std::string_view kTraceStart = "headroom-trace ";
inline constexpr int kTraceVersion = 4;
// The second line of version 1: the columns of all lines below it.
inline constexpr std::string_view kTraceColumnsOfVersion1 = "op,id,bytes,stream,time_ns,node,tag";

// A writer keeps this much of a name, and the innermost frames that fit of a stack. Each byte may take three
// in the file, so a line stays below TraceInput::kMaxLineBytes.
inline constexpr size_t kMaxTraceNameBytes = 1024, kMaxTraceStackBytes = size_t{1} << 14;

// The first letter of a line. Version 2 has no parts; until version 3 allocations had no module and stack,
// and there were no marks.
enum class TraceLine : char {
  kSetting = 's',   // name, value
  kName = 'n',      // the text of the next name, counted from 1
  kAllocate = 'a',  // address, bytes, block bytes, stream, time, names of op, tensor and source, category,
                    // names of module and stack
  kPart =
      'p',  // part of the block above: address, bytes, first, end, names of op, tensor and source, category
  kFree = 'f',         // address, stream, time
  kReserve = 'r',      // address, bytes, time: from the driver; address 0: unknown
  kUnreserve = 'u',    // the same, back to the driver
  kRetry = 't',        // bytes, stream, time: the next request found room only after memory came back
  kOutOfMemory = 'o',  // bytes, stream, time, names of op, tensor and source, category
  kDevice = 'd',       // total, free, held by this process, held by others, time
  kMark = 'm',         // step, phase, time
  kEmptyCache = 'c',   // time: the program had idle memory given back
};

// Returns true if a byte of a name is written as '%' and two hexadecimal digits.
constexpr bool must_escape(char c) {
  const auto code = static_cast<unsigned char>(c);
  return code < 0x20 || code == 0x7f || c == ',' || c == '%';
}

}  // namespace headroom
