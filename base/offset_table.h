// A hash table from offsets to record numbers, with open addressing; allocates only when it grows. Knows no
// blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace headroom {

class OffsetTable {
 public:
  static constexpr int32_t kNone = -1;

  // `unit` (a power of two) divides every offset.
  explicit OffsetTable(int64_t unit) : unit_(unit), slots_(1024) {}

  // Makes room for one more; call it before insert(). Throws std::bad_alloc and then changes nothing.
  void prepare() {
    if (2 * (size_ + 1) > slots_.size()) grow();
  }
  // The offset must not be in the table.
  void insert(int64_t offset, int32_t record) noexcept {
    place({offset, record});
    ++size_;
  }
  // kNone when it is not in the table.
  int32_t find(int64_t offset) const noexcept {
    for (size_t at = home(offset);; at = next(at)) {
      if (slots_[at].record == kNone || slots_[at].offset == offset) return slots_[at].record;
    }
  }
  // The offset must be in the table.
  void erase(int64_t offset) noexcept {
    size_t hole = home(offset);
    while (slots_[hole].offset != offset || slots_[hole].record == kNone) hole = next(hole);
    // Moves back entries that a search could not reach across the hole, so no tombstones are needed.
    for (size_t at = next(hole); slots_[at].record != kNone; at = next(at)) {
      const size_t mask = slots_.size() - 1;
      if (((at - home(slots_[at].offset)) & mask) >= ((at - hole) & mask)) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole].record = kNone;
    --size_;
  }

 private:
  struct Slot {
    int64_t offset = 0;
    int32_t record = kNone;
  };

  // Fibonacci hashing (Knuth, volume 3, 6.4) spreads neighbors.
  size_t home(int64_t offset) const {
    const auto number = static_cast<uint64_t>(offset / unit_);
    return static_cast<size_t>((number * 0x9E3779B97F4A7C15u) >> 32) & (slots_.size() - 1);
  }
  size_t next(size_t at) const { return (at + 1) & (slots_.size() - 1); }
  void place(const Slot& slot) {
    size_t at = home(slot.offset);
    while (slots_[at].record != kNone) at = next(at);
    slots_[at] = slot;
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    std::swap(old, slots_);
    for (const Slot& slot : old) {
      if (slot.record != kNone) place(slot);
    }
  }

  const int64_t unit_;
  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace headroom
