#include "trace/trace_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <new>

#include "base/errors.h"

namespace headroom {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 18;
// A stack, each byte of which may become three. Two names and an event of twelve numbers are far shorter.
constexpr size_t kMaxLineBytes = 8 + 3 * kMaxTraceStackBytes;
// A killed program loses at most the events of this time, and less at its beginning: the time doubles.
constexpr int64_t kFlushNs = 500'000'000;
// Further names stay empty, as in a program that invents new ones at each step.
constexpr size_t kMaxNamesKept = size_t{1} << 19, kMaxNameBytesKept = size_t{1} << 28;
static_assert(kMaxNameBytesKept + kMaxNamesKept * TraceBuilder::kBytesBesideName <=
                  TraceBuilder::kMaxNameBytes,
              "what is written can be read");

template <typename Number>
char* put(char* to, Number number, int base = 10) {
  *to++ = ',';
  return std::to_chars(to, to + 21, number, base).ptr;
}

char* put(char* to, std::string_view name) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  *to++ = ',';
  for (const char c : name) {
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

TraceLine line_of(DeviceEvent::Kind kind) {
  switch (kind) {
    case DeviceEvent::Kind::kReserve:
      return TraceLine::kReserve;
    case DeviceEvent::Kind::kUnreserve:
      return TraceLine::kUnreserve;
    case DeviceEvent::Kind::kRetry:
      return TraceLine::kRetry;
    case DeviceEvent::Kind::kOutOfMemory:
      return TraceLine::kOutOfMemory;
    case DeviceEvent::Kind::kEmptyCache:
      return TraceLine::kEmptyCache;
    case DeviceEvent::Kind::kDevice:
      break;
  }
  return TraceLine::kDevice;
}

}  // namespace

TraceWriter::TraceWriter(std::string path)
    : path_(std::move(path)),
      descriptor_(open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)),
      buffer_(kBufferBytes) {
  const auto refuse = [&](const char* why) {
    if (descriptor_ >= 0) ::close(descriptor_);
    throw InvalidArgument(fmt::format("{}: cannot write it: {}", path_, why));
  };
  if (descriptor_ < 0) refuse(std::strerror(errno));
  struct stat status {};
  if (fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode)) {
    // Two writers would mix their lines. File systems without locks do without.
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      refuse("another process, or another part of this one, records into it");
    if (ftruncate(descriptor_, 0) != 0) refuse(std::strerror(errno));
  }
  end_ = fmt::format_to(buffer_.data(), "{}{}\n", kTraceStart, kTraceVersion);
  flush();  // so that also a program that is killed at once leaves a trace
}

TraceWriter::~TraceWriter() {
  flush();
  if (descriptor_ >= 0) ::close(descriptor_);
}

void TraceWriter::allocate(uint64_t id, int64_t bytes, const TraceContext& context) noexcept {
  const int32_t names[] = {name(context.op), name(context.tag), name(context.source)};
  const int32_t module = name(context.module), frames = stack(context.stack);
  char* to = begin(TraceLine::kAllocate);
  to = put(to, id, 16);
  to = put(to, bytes);
  to = put(to, context.block_bytes);
  to = put_user(to, context, names);
  end(put(put(to, module), frames), context.time_ns);
}

void TraceWriter::free(uint64_t id, const TraceContext& context) noexcept {
  char* to = put(begin(TraceLine::kFree), id, 16);
  to = put(to, context.stream);
  end(put_time(to, context.time_ns), context.time_ns);
}

void TraceWriter::part(uint64_t address, int64_t bytes, int64_t first, int64_t last,
                       const TraceContext& context) noexcept {
  const int32_t names[] = {name(context.op), name(context.tag), name(context.source)};
  char* to = put(begin(TraceLine::kPart), address, 16);
  for (const int64_t number : {bytes, first, last}) to = put(to, number);
  end(put_names(to, context, names), context.time_ns);
}

void TraceWriter::add(const DeviceEvent& event, const TraceContext& context) noexcept {
  using Kind = DeviceEvent::Kind;
  const bool failed = event.kind == Kind::kOutOfMemory;
  const int32_t names[] = {failed ? name(context.op) : 0, failed ? name(context.tag) : 0,
                           failed ? name(context.source) : 0};
  char* to = begin(line_of(event.kind));
  if (event.kind == Kind::kReserve || event.kind == Kind::kUnreserve) to = put(to, event.address, 16);
  if (event.kind != Kind::kEmptyCache) to = put(to, event.bytes);
  if (event.kind == Kind::kDevice) {
    for (const int64_t bytes : {event.free_bytes, event.process_bytes, event.others_bytes})
      to = put(to, bytes);
  }
  if (event.kind == Kind::kRetry) to = put(to, context.stream);
  end(failed ? put_user(to, context, names) : put_time(to, context.time_ns), context.time_ns);
  if (failed) flush();  // it may be the program's last event
}

void TraceWriter::mark(int32_t step, StepPhase phase, int64_t time_ns) noexcept {
  char* to = put(begin(TraceLine::kMark), step);
  to = put(to, static_cast<int>(phase));
  end(put_time(to, time_ns), time_ns);
}

void TraceWriter::setting(std::string_view key, std::string_view value) noexcept {
  char* to = put(begin(TraceLine::kSetting), key.substr(0, kMaxTraceNameBytes));
  to = put(to, value.substr(0, kMaxTraceNameBytes));
  *to++ = '\n';
  end_ = to;
}

int32_t TraceWriter::name(std::string_view text) noexcept {
  return number_of(text.substr(0, kMaxTraceNameBytes));
}

// Whole frames; a part of one would look like another function.
int32_t TraceWriter::stack(std::string_view text) noexcept {
  if (text.size() > kMaxTraceStackBytes) {
    const size_t end = text.rfind('\n', kMaxTraceStackBytes);
    text = text.substr(0, end == std::string_view::npos ? kMaxTraceStackBytes : end);
  }
  return number_of(text);
}

// The number of a name; writes a line for a new one.
int32_t TraceWriter::number_of(std::string_view text) noexcept {
  if (text.empty()) return 0;
  if (const auto known = names_.find(text); known != names_.end()) return known->second;
  if (names_.size() == kMaxNamesKept || name_bytes_ + text.size() > kMaxNameBytesKept) return 0;
  const auto number = static_cast<int32_t>(names_.size()) + 1;
  try {
    names_.emplace(text, number);
  } catch (const std::bad_alloc&) {
    return 0;
  }
  name_bytes_ += text.size();
  char* to = put(begin(TraceLine::kName), text);
  *to++ = '\n';
  end_ = to;
  return number;
}

char* TraceWriter::begin(TraceLine line) noexcept {
  if (static_cast<size_t>(buffer_.data() + buffer_.size() - end_) < kMaxLineBytes) flush();
  char* to = end_;
  *to++ = static_cast<char>(line);
  return to;
}

char* TraceWriter::put_user(char* to, const TraceContext& context, const int32_t (&names)[3]) noexcept {
  return put_names(put_time(put(to, context.stream), context.time_ns), context, names);
}

char* TraceWriter::put_names(char* to, const TraceContext& context, const int32_t (&names)[3]) noexcept {
  for (const int32_t number : names) to = put(to, number);
  return put(to, static_cast<int>(context.category));
}

// Writes the time as a difference, which is short.
char* TraceWriter::put_time(char* to, int64_t time_ns) noexcept {
  const int64_t before = std::exchange(last_ns_, time_ns);
  return put(to, time_ns - before);
}

void TraceWriter::end(char* to, int64_t time_ns) noexcept {
  *to++ = '\n';
  end_ = to;
  if (time_ns - flushed_ns_ < flush_after_ns_) return;
  flushed_ns_ = time_ns;
  flush_after_ns_ = std::min(2 * flush_after_ns_, kFlushNs);
  flush();
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
    throw Error(fmt::format("{}: cannot write it: {}", path_, std::strerror(error_)));
  }
}

}  // namespace headroom
