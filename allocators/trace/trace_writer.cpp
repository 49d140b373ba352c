#include "allocators/trace/trace_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "allocators/trace/recording_format.h"
#include "runtime/core/errors.h"

namespace headroom {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 18;
constexpr size_t kMaxNameBytes = 1024;
// Op, four numbers of at most 20 digits, six commas, and two names of which each byte may become three.
constexpr size_t kMaxEventBytes = 1 + 4 * 20 + 7 + 2 * 3 * kMaxNameBytes;

char* put(char* to, uint64_t number) {
  *to++ = ',';
  return std::to_chars(to, to + 20, number).ptr;
}

char* put(char* to, std::string_view name) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  *to++ = ',';
  for (const char c : name.substr(0, kMaxNameBytes)) {
    if (must_escape(c)) {
      const auto code = static_cast<unsigned char>(c);
      *to++ = '%';
      *to++ = kDigits[code >> 4];
      *to++ = kDigits[code & 15];
    } else {
      *to++ = c;
    }
  }
  return to;
}

}  // namespace

TraceWriter::TraceWriter(std::string path)
    : path_(std::move(path)),
      descriptor_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)),
      buffer_(kBufferBytes) {
  if (descriptor_ < 0) {
    throw InvalidArgument(fmt::format("{}: cannot write it: {}", path_, std::strerror(errno)));
  }
  end_ = fmt::format_to(buffer_.data(), "{}{}\n{}\n", kRecordingStart, kRecordingVersion, kRecordingColumns);
}

TraceWriter::~TraceWriter() {
  flush();
  if (descriptor_ >= 0) ::close(descriptor_);
}

void TraceWriter::allocate(uint64_t id, int64_t bytes, const TraceContext& context) noexcept {
  add('a', id, bytes, context);
}

void TraceWriter::free(uint64_t id, int64_t bytes, const TraceContext& context) noexcept {
  add('f', id, bytes, context);
}

void TraceWriter::add(char op, uint64_t id, int64_t bytes, const TraceContext& context) noexcept {
  if (static_cast<size_t>(buffer_.data() + buffer_.size() - end_) < kMaxEventBytes) flush();
  char* to = end_;
  *to++ = op;
  to = put(to, id);
  to = put(to, static_cast<uint64_t>(bytes));
  to = put(to, context.stream);
  to = put(to, static_cast<uint64_t>(context.time_ns));
  to = put(to, context.op);
  to = put(to, context.tag);
  *to++ = '\n';
  end_ = to;
}

void TraceWriter::flush() noexcept {
  const char* from = buffer_.data();
  while (error_ == 0 && from < end_) {
    const ssize_t done = write(descriptor_, from, static_cast<size_t>(end_ - from));
    if (done >= 0) {
      from += done;
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  end_ = buffer_.data();
}

void TraceWriter::close() {
  flush();
  if (descriptor_ >= 0 && ::close(descriptor_) != 0 && error_ == 0) error_ = errno;
  descriptor_ = -1;
  if (error_ != 0) {
    throw InvalidArgument(fmt::format("{}: cannot write it: {}", path_, std::strerror(error_)));
  }
}

}  // namespace headroom
