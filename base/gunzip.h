// The content of a file, decompressed if it begins like a gzip file. Knows no path and no message.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace headroom {

class Gunzip {
 public:
  enum class Fault : uint8_t { kNone, kTruncated, kCorrupt, kUnreadable };

  // Reads up to so many bytes: none at the end, below 0 with errno set on failure.
  using Read = std::function<int64_t(void* to, int64_t bytes)>;
  explicit Gunzip(Read read);
  ~Gunzip();
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  // Reads up to `bytes` of content: fewer at the end, and before a fault. Reads all members of a gzip file;
  // ignores data after the last member, as gzip does.
  int64_t read(void* destination, int64_t bytes);

  Fault fault() const { return fault_; }
  std::string_view reason() const { return reason_; }  // reason for a fault, in a few words
  // Bytes of the file that were taken from it and used.
  int64_t stored_bytes() const { return stored_bytes_ - (end_ - next_); }

 private:
  struct Inflater;  // state of the library that the build found
  enum class State : uint8_t { kBegin, kPlain, kBetween, kMember, kEnd };

  int64_t take(uint8_t* to, int64_t bytes);
  int64_t fill();
  void fail(Fault fault, std::string_view reason);
  int64_t read_plain(uint8_t* to, int64_t bytes);
  int64_t read_member(uint8_t* to, int64_t bytes);

  const Read read_;
  State state_ = State::kBegin;
  std::vector<uint8_t> buffer_;
  uint8_t *next_ = nullptr, *end_ = nullptr;  // unused part of the buffer
  int64_t stored_bytes_ = 0;
  std::unique_ptr<Inflater> inflater_;
  Fault fault_ = Fault::kNone;
  std::string_view reason_;
};

}  // namespace headroom
