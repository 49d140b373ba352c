// Ranges of addresses that do not overlap, to check what foreign code hands out. Knows no memory.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace headroom {

class AddressRanges {
 public:
  // False for a range without bytes, one that wraps around, and one that overlaps another.
  bool add(const void* pointer, int64_t bytes) {
    const auto begin = reinterpret_cast<uint64_t>(pointer), end = begin + static_cast<uint64_t>(bytes);
    if (bytes <= 0 || end < begin) return false;
    const auto next = bytes_.lower_bound(begin);
    if (next != bytes_.end() && next->first < end) return false;
    if (next != bytes_.begin() && end_of(std::prev(next)) > begin) return false;
    bytes_.emplace_hint(next, begin, static_cast<uint64_t>(bytes));
    return true;
  }
  // The bytes of the range that begins there; 0 if none does.
  int64_t bytes_at(const void* pointer) const {
    const auto found = bytes_.find(reinterpret_cast<uint64_t>(pointer));
    return found == bytes_.end() ? 0 : static_cast<int64_t>(found->second);
  }
  void remove(const void* pointer) { bytes_.erase(reinterpret_cast<uint64_t>(pointer)); }
  // True if one range holds all of these bytes.
  bool holds(const void* pointer, int64_t bytes) const {
    const auto begin = reinterpret_cast<uint64_t>(pointer), end = begin + static_cast<uint64_t>(bytes);
    const auto next = bytes_.upper_bound(begin);
    return bytes >= 0 && end >= begin && next != bytes_.begin() && end_of(std::prev(next)) >= end;
  }
  // Calls visit(pointer, bytes) for each range.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const auto& [begin, bytes] : bytes_)
      visit(reinterpret_cast<void*>(begin), static_cast<int64_t>(bytes));
  }

 private:
  using Ranges = std::map<uint64_t, uint64_t>;  // bytes by address
  static uint64_t end_of(Ranges::const_iterator range) { return range->first + range->second; }

  Ranges bytes_;
};

}  // namespace headroom
