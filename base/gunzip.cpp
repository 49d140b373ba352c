#include "base/gunzip.h"

#ifdef HEADROOM_HAS_ISAL
#include <isa-l/igzip_lib.h>
#else
#include <zlib.h>
#endif
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

namespace headroom {
namespace {

constexpr size_t kBufferBytes = 1 << 18;
// RFC 1952, section 2.3.1.
constexpr uint8_t kMagic[] = {0x1f, 0x8b};

// Converts to a count for libraries that count in 32 bits.
uint32_t as_count(int64_t bytes) {
  return static_cast<uint32_t>(std::min<int64_t>(bytes, std::numeric_limits<int32_t>::max()));
}

}  // namespace

// Inflates one member after another, each with its header and its sum checked.
#ifdef HEADROOM_HAS_ISAL
struct Gunzip::Inflater {
  inflate_state state{};
  // isal_inflate() would forget a header that continues after the buffered bytes.
  isal_gzip_header header{};

  void begin() {
    isal_inflate_init(&state);
    state.crc_flag = ISAL_GZIP;
    header = {};
  }
  // Advances `from` and `to`. Returns true at the end of the member; otherwise `reason` tells if it cannot
  // continue.
  bool step(uint8_t*& from, int64_t stored, uint8_t*& to, int64_t room, std::string_view& reason) {
    state.next_in = from;
    state.avail_in = as_count(stored);
    state.next_out = to;
    state.avail_out = as_count(room);
    int result = state.wrapper_flag == 0 ? isal_read_gzip_header(&state, &header) : ISAL_DECOMP_OK;
    if (result == ISAL_DECOMP_OK) result = isal_inflate(&state);
    switch (result) {
      case ISAL_DECOMP_OK:
      case ISAL_END_INPUT:
        break;
      case ISAL_INVALID_WRAPPER:
        reason = "incorrect header";
        break;
      case ISAL_UNSUPPORTED_METHOD:
        reason = "unknown compression method";
        break;
      case ISAL_INCORRECT_CHECKSUM:
        reason = "incorrect data check";
        break;
      case ISAL_INVALID_LOOKBACK:
        reason = "invalid distance too far back";
        break;
      case ISAL_INVALID_SYMBOL:
        reason = "invalid code";
        break;
      default:
        reason = "invalid block";
        break;
    }
    from = state.next_in;
    to = state.next_out;
    return state.block_state == ISAL_BLOCK_FINISH;
  }
};
#else
struct Gunzip::Inflater {
  static constexpr int kGzip = 16 + MAX_WBITS;
  z_stream state{};

  Inflater() {
    if (inflateInit2(&state, kGzip) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&state); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  void begin() { inflateReset(&state); }
  // Advances `from` and `to`. Returns true at the end of the member; otherwise `reason` tells if it cannot
  // continue.
  bool step(uint8_t*& from, int64_t stored, uint8_t*& to, int64_t room, std::string_view& reason) {
    state.next_in = from;
    state.avail_in = as_count(stored);
    state.next_out = to;
    state.avail_out = as_count(room);
    const int result = inflate(&state, Z_NO_FLUSH);
    from = state.next_in;
    to = state.next_out;
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
      reason = state.msg != nullptr ? state.msg : "invalid data";
    return result == Z_STREAM_END;
  }
};
#endif

Gunzip::Gunzip(Read read) : read_(std::move(read)), buffer_(kBufferBytes) {
  next_ = end_ = buffer_.data();
}

Gunzip::~Gunzip() = default;

int64_t Gunzip::read(void* destination, int64_t bytes) {
  auto* const begin = static_cast<uint8_t*>(destination);
  int64_t done = 0;
  while (done < bytes && state_ != State::kEnd && fault_ == Fault::kNone) {
    if (state_ == State::kPlain) {
      done += read_plain(begin + done, bytes - done);
    } else if (state_ == State::kMember) {
      done += read_member(begin + done, bytes - done);
    } else {
      while (end_ - next_ < 2 && fill() > 0) {
      }
      const bool is_member = end_ - next_ >= 2 && std::equal(std::begin(kMagic), std::end(kMagic), next_);
      if (is_member) {
        if (inflater_ == nullptr) inflater_ = std::make_unique<Inflater>();
        inflater_->begin();
      }
      const State other = state_ == State::kBegin ? State::kPlain : State::kEnd;
      state_ = is_member ? State::kMember : other;
    }
  }
  return done;
}

// Reads up to `bytes` of the stored file; returns 0 at the end and after a fault.
int64_t Gunzip::take(uint8_t* to, int64_t bytes) {
  int64_t got = 0;
  do {
    got = read_(to, bytes);
  } while (got < 0 && errno == EINTR);
  if (got < 0) fail(Fault::kUnreadable, std::strerror(errno));
  got = std::max<int64_t>(got, 0);
  stored_bytes_ += got;
  return got;
}

// Appends more of the file to the rest of the buffer.
int64_t Gunzip::fill() {
  end_ = std::copy(next_, end_, buffer_.data());
  next_ = buffer_.data();
  const int64_t got = take(end_, buffer_.data() + buffer_.size() - end_);
  end_ += got;
  return got;
}

void Gunzip::fail(Fault fault, std::string_view reason) {
  fault_ = fault;
  reason_ = reason;
}

int64_t Gunzip::read_plain(uint8_t* to, int64_t bytes) {
  int64_t count = std::min<int64_t>(bytes, end_ - next_);
  if (count > 0) {
    std::copy_n(next_, count, to);
    next_ += count;
  } else {
    count = take(to, bytes);
    if (count == 0) state_ = State::kEnd;
  }
  return count;
}

int64_t Gunzip::read_member(uint8_t* to, int64_t bytes) {
  uint8_t* const begin = to;
  std::string_view reason;
  const uint8_t* const stored = next_;
  const bool is_done = inflater_->step(next_, end_ - next_, to, bytes, reason);
  if (!reason.empty()) {
    fail(Fault::kCorrupt, reason);
  } else if (is_done) {
    state_ = State::kBetween;
  } else if (to == begin && next_ == stored && fill() == 0 && fault_ == Fault::kNone) {
    fail(Fault::kTruncated, "it ends within a member");
  }
  return to - begin;
}

}  // namespace headroom
