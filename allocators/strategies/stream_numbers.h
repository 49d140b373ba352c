// Numbers for streams, in the order in which they come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "device/stream.h"

namespace headroom {

class StreamNumbers {
 public:
  static constexpr int32_t kNone = -1;

  // The number of a stream, or kNone. Most often it is the stream asked for last.
  int32_t find(Stream stream) const {
    if (!streams_.empty() && streams_[last_] == stream) return static_cast<int32_t>(last_);
    const auto found = numbers_.find(stream.handle);
    if (found == numbers_.end()) return kNone;
    last_ = static_cast<size_t>(found->second);
    return found->second;
  }
  // Returns the stream's number; a new stream gets the next one. Throws std::bad_alloc.
  int32_t number_of(Stream stream) {
    const int32_t known = find(stream);
    if (known != kNone) return known;
    const auto number = static_cast<int32_t>(streams_.size());
    streams_.push_back(stream);
    try {
      numbers_.emplace(stream.handle, number);
    } catch (...) {
      streams_.pop_back();
      throw;
    }
    return number;
  }
  Stream operator[](int32_t number) const { return streams_[static_cast<size_t>(number)]; }
  int32_t size() const { return static_cast<int32_t>(streams_.size()); }

 private:
  std::vector<Stream> streams_;
  std::unordered_map<void*, int32_t> numbers_;
  mutable size_t last_ = 0;
};

}  // namespace headroom
