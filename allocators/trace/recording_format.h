// What the writer and the reader of Headroom's own recording agree on; docs/replay.md describes the whole.
#pragma once

#include <string_view>

namespace headroom {

// The first line: this and the version.
inline constexpr std::string_view kRecordingStart = "headroom-trace ";
inline constexpr int kRecordingVersion = 1;
// The second line. Every line after it has as many columns.
inline constexpr std::string_view kRecordingColumns = "op,id,bytes,stream,time_ns,node,tag";

// Whether a byte of a name is written as '%' and two hexadecimal digits, so that a line stays a line.
constexpr bool must_escape(char c) {
  const auto code = static_cast<unsigned char>(c);
  return code < 0x20 || code == 0x7f || c == ',' || c == '%';
}

}  // namespace headroom
