// The bytes and lines of a trace file with their positions. Knows no format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/text.h"
#include "trace/read_trace.h"

namespace headroom {

class TraceInput {
 public:
  // Longer lines are refused, so that a file without line ends takes no memory.
  static constexpr int64_t kMaxLineBytes = int64_t{1} << 16;
  // Limits on a file's lines, which use some hundred bytes of memory each: a fixed number, and above that a
  // multiple of its stored bytes. A trace of a million events has that many; gzip needs more than a byte per
  // line if lines contain times or new numbers.
  static constexpr int64_t kFreeLines = int64_t{1} << 21, kLinesPerStoredByte = 2;

  // `follow` hears how much of the file is read; errors name the title where there is one.
  explicit TraceInput(const std::string& path, FollowReading follow = {}, const std::string& title = {});

  // The next `bytes` (up to kMaxLineBytes) without reading them; fewer only at the end. Valid until the next
  // call.
  std::string_view peek(int64_t bytes);

  // The next line without its line end, valid until the next call; false at the end of the file. Throws
  // InvalidArgument for one that is too long, and where gzip made far more lines small than a trace has.
  bool next_line(std::string_view* line);
  // Returns true if that line had a line end; the last line of a file that was cut off has none.
  bool line_ended() const { return line_ended_; }
  // Exactly `bytes` bytes; throws InvalidArgument when the file ends before.
  void read(void* destination, int64_t bytes);
  uint8_t read_byte();

  const std::string& path() const { return file_.path(); }
  int64_t at_bytes() const { return at_; }  // bytes read
  // Returns the stored bytes of the file: fewer if it is gzipped.
  int64_t stored_bytes() const { return file_.stored_bytes(); }
  // Throw InvalidArgument with the file, the line or byte, and `why`.
  [[noreturn]] void fail(std::string_view why) const { file_.fail(why); }
  [[noreturn]] void fail_at_line(std::string_view why) const;
  [[noreturn]] void fail_at_byte(std::string_view why) const;

 private:
  bool fill();

  InputFile file_;
  const FollowReading follow_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // the unread part of the buffer
  int64_t at_ = 0;              // bytes read
  int64_t line_ = 0;            // lines read
  bool line_ended_ = true;
};

// Parse `text` as a number. Throw InvalidArgument naming it as `what`.
uint64_t parse_unsigned(std::string_view text, std::string_view what);
uint64_t parse_hexadecimal(std::string_view text, std::string_view what);  // with or without 0x
int64_t parse_size(std::string_view text);
int64_t parse_signed(std::string_view text, std::string_view what);

// A column for a message: printable and shortened.
inline std::string quoted_column(std::string_view text) {
  return printable(text, 40);
}

// Splits at commas: the number of columns. The first `capacity` are stored.
size_t split_columns(std::string_view line, std::string_view* columns, size_t capacity);

}  // namespace headroom
