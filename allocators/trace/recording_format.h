// What the writer and the reader of Headroom's own recording agree on; docs/replay.md describes the whole.
#pragma once

#include <string_view>

namespace headroom {

// The first line: this and the version.
inline constexpr std::string_view kRecordingStart = "headroom-trace ";
inline constexpr int kRecordingVersion = 3;
// The second line of version 1, whose every other line has as many columns.
inline constexpr std::string_view kRecordingColumnsOfVersion1 = "op,id,bytes,stream,time_ns,node,tag";

// What a line begins with; version 2 has no parts.
enum class RecordingLine : char {
  kSetting = 's',   // name, value
  kName = 'n',      // the text of the next name; names are counted from 1
  kAllocate = 'a',  // address, bytes, block bytes, stream, time, names of op, tensor and source, category
  kPart = 'p',  // of the block before: address, bytes, first, end, names of op, tensor and source, category
  kFree = 'f',  // address, stream, time
  kReserve = 'r',      // address, bytes, time: from the driver; address 0: unknown
  kUnreserve = 'u',    // the same, back to the driver
  kRetry = 't',        // bytes, stream, time: what follows found room only after memory came back
  kOutOfMemory = 'o',  // bytes, stream, time, names of op, tensor and source, category
  kDevice = 'd',       // total, free, held by this process, held by others, time
};

// Whether a byte of a name is written as '%' and two hexadecimal digits, so that a line stays a line.
constexpr bool must_escape(char c) {
  const auto code = static_cast<unsigned char>(c);
  return code < 0x20 || code == 0x7f || c == ',' || c == '%';
}

}  // namespace headroom
