#include "trace/trace_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "base/errors.h"

namespace headroom {
namespace {

uint64_t parse(std::string_view text, int base, std::string_view what) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (error == std::errc::result_out_of_range && stop == end) {
    throw InvalidArgument(fmt::format("{} '{}' is 2^64 or more", what, quoted_column(text)));
  }
  if (text.size() > 1 && text[0] == '-' && text.find_first_not_of("0123456789", 1) == text.npos) {
    throw InvalidArgument(fmt::format("{} '{}' must not be negative", what, quoted_column(text)));
  }
  if (error != std::errc() || stop != end) {
    throw InvalidArgument(fmt::format("{} '{}' is not a number", what, quoted_column(text)));
  }
  return value;
}

}  // namespace

TraceInput::TraceInput(const std::string& path, FollowReading follow, const std::string& title)
    : file_(path, title), follow_(std::move(follow)), buffer_(2 * kMaxLineBytes) {}

// Moves the unread part to the front and reads more; false at the end of the file.
bool TraceInput::fill() {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  const int64_t got = file_.read(buffer_.data() + end_, static_cast<int64_t>(buffer_.size() - end_));
  end_ += static_cast<size_t>(got);
  if (follow_) {
    if (const std::optional<double> share = file_.share_read()) follow_(*share);
  }
  return got > 0;
}

std::string_view TraceInput::peek(int64_t bytes) {
  if (end_ - begin_ < static_cast<size_t>(bytes)) fill();
  return {buffer_.data() + begin_, std::min(static_cast<size_t>(bytes), end_ - begin_)};
}

bool TraceInput::next_line(std::string_view* line) {
  ++line_;
  size_t searched = 0;
  for (;;) {
    const std::string_view left(buffer_.data() + begin_, end_ - begin_);
    size_t length = left.find('\n', searched);
    const bool ended = length != std::string_view::npos;
    if (!ended && left.size() <= kMaxLineBytes) {
      searched = left.size();
      if (fill()) continue;
      if (left.empty()) return false;
    }
    length = std::min(length, left.size());
    if (length > kMaxLineBytes) fail_at_line(fmt::format("longer than {} bytes", kMaxLineBytes));
    line_ended_ = ended;
    *line = std::string_view(buffer_.data() + begin_, length);
    begin_ += length + (ended ? 1 : 0);
    at_ += static_cast<int64_t>(length) + (ended ? 1 : 0);
    if (line->ends_with('\r')) line->remove_suffix(1);
    if (line_ > kFreeLines && (line_ - kFreeLines) / kLinesPerStoredByte > stored_bytes()) {
      fail_at_line("far more lines than a trace of its size; if it is one, gunzip it first");
    }
    return true;
  }
}

void TraceInput::read(void* destination, int64_t bytes) {
  auto* to = static_cast<char*>(destination);
  while (bytes > 0) {
    if (begin_ == end_ && !fill()) fail_at_byte("the file ends too early");
    const size_t chunk = std::min(static_cast<size_t>(bytes), end_ - begin_);
    std::memcpy(to, buffer_.data() + begin_, chunk);
    to += chunk;
    begin_ += chunk;
    at_ += static_cast<int64_t>(chunk);
    bytes -= static_cast<int64_t>(chunk);
  }
}

uint8_t TraceInput::read_byte() {
  if (begin_ == end_ && !fill()) fail_at_byte("the file ends too early");
  ++at_;
  return static_cast<uint8_t>(buffer_[begin_++]);
}

void TraceInput::fail_at_line(std::string_view why) const {
  throw InvalidArgument(fmt::format("{}:{}: {}", path(), line_, why));
}

void TraceInput::fail_at_byte(std::string_view why) const {
  throw InvalidArgument(fmt::format("{}: byte {}: {}", path(), at_, why));
}

uint64_t parse_unsigned(std::string_view text, std::string_view what) {
  return parse(text, 10, what);
}

uint64_t parse_hexadecimal(std::string_view text, std::string_view what) {
  const bool prefixed = text.starts_with("0x") || text.starts_with("0X");
  return parse(prefixed ? text.substr(2) : text, 16, what);
}

int64_t parse_size(std::string_view text) {
  const uint64_t bytes = parse(text, 10, "size");
  if (bytes > INT64_MAX) throw InvalidArgument(fmt::format("size of {} bytes is 2^63 or more", bytes));
  return static_cast<int64_t>(bytes);
}

int64_t parse_signed(std::string_view text, std::string_view what) {
  const bool negative = text.starts_with("-");
  const uint64_t value = parse(negative ? text.substr(1) : text, 10, what);
  if (value > INT64_MAX)
    throw InvalidArgument(fmt::format("{} '{}' is 2^63 or more", what, quoted_column(text)));
  return negative ? -static_cast<int64_t>(value) : static_cast<int64_t>(value);
}

size_t split_columns(std::string_view line, std::string_view* columns, size_t capacity) {
  size_t count = 0;
  for (size_t begin = 0;;) {
    const size_t comma = line.find(',', begin);
    if (count < capacity) columns[count] = line.substr(begin, comma - begin);
    ++count;
    if (comma == std::string_view::npos) return count;
    begin = comma + 1;
  }
}

}  // namespace headroom
