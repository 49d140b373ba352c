// Numbers for texts that are stored elsewhere: a hash table with open addressing. Does not know the meaning
// of the texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace headroom {

class TextTable {
 public:
  static constexpr int32_t kNone = -1;

  static uint32_t hash(std::string_view text) {
    const uint64_t hash = std::hash<std::string_view>()(text);
    return static_cast<uint32_t>(hash ^ hash >> 32);
  }

  // The number of a text with this hash, or kNone; `text_of(number)` is the text that got a number.
  template <typename TextOf>
  int32_t find(uint32_t hash, std::string_view text, const TextOf& text_of) const {
    for (size_t at = home(hash);; at = home(at + 1)) {
      const Slot& slot = slots_[at];
      if (slot.number == kNone || (slot.hash == hash && text_of(slot.number) == text)) return slot.number;
    }
  }

  // Gives a text that is not in the table the next number: 0, 1, ... Throws std::bad_alloc and then changes
  // nothing.
  int32_t add(uint32_t hash) {
    if (2 * (static_cast<size_t>(count_) + 1) > slots_.size()) grow();
    place({hash, count_});
    return count_++;
  }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t number = kNone;
  };

  size_t home(size_t hash) const { return hash & (slots_.size() - 1); }
  void place(const Slot& slot) {
    size_t at = home(slot.hash);
    while (slots_[at].number != kNone) at = home(at + 1);
    slots_[at] = slot;
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    slots_.swap(old);
    for (const Slot& slot : old) {
      if (slot.number != kNone) place(slot);
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(64);
  int32_t count_ = 0;
};

}  // namespace headroom
