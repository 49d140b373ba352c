// The blocks of this process by their handle: a hash table with open addressing, so that a call costs as much
// with a million blocks as with one. Not thread-safe. Knows no driver.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace headroom::guard {

enum class Kind : uint8_t {
  kNone,
  kMemory,
  kPooled,
  kHandle,
  kObject,
  kMapping,
  kArray,
  kGraph,
  kPool,
  kGraphPool,
  kContext
};

struct Block {
  uint64_t key = 0;
  uint64_t owner = 0;   // the context, pool or object that it belongs to
  int64_t covered = 0;  // kPool: requests of so many bytes need no more than `pending`
  int64_t bytes = 0;  // kPool, kGraphPool: what is counted for it; kContext: what it took; kGraph: its nodes'
  int64_t live = 0;   // kPool: the part of it that the program uses; kGraph: the trim before its last launch
  int64_t pending = 0;   // kPool: counted, and not confirmed by the driver
  int64_t reserved = 0;  // kPool: what the driver said last that it holds
  int32_t refs =
      0;  // kHandle: itself; kObject: its handles and mappings; kPool: calls that have not returned
  int16_t card = 0;
  Kind kind = Kind::kNone;
};

class Blocks {
 public:
  Block* find(Kind kind, uint64_t key) {
    if (size_ == 0) return nullptr;
    for (size_t i = place(kind, key);; i = (i + 1) & mask_) {
      if (at_[i].kind == Kind::kNone) return nullptr;
      if (at_[i].key == key && at_[i].kind == kind) return &at_[i];
    }
  }

  // Pointers into the table are valid until the next insertion or removal. False without memory.
  bool insert(const Block& block) {
    if (Block* old = find(block.kind, block.key)) return *old = block, true;
    if (2 * (size_ + 1) > mask_ + (mask_ != 0) && !grow()) return false;
    size_t i = place(block.kind, block.key);
    while (at_[i].kind != Kind::kNone) i = (i + 1) & mask_;
    at_[i] = block;
    ++size_;
    return true;
  }

  void erase(Block* block) {
    size_t hole = static_cast<size_t>(block - at_);
    --size_;
    for (size_t i = hole;;) {
      i = (i + 1) & mask_;
      if (at_[i].kind == Kind::kNone) break;
      // Moves up what would not be found any more past the hole.
      if (((i - place(at_[i].kind, at_[i].key)) & mask_) >= ((i - hole) & mask_)) {
        at_[hole] = at_[i];
        hole = i;
      }
    }
    at_[hole] = {};
  }

  // Takes out each block for which `take(block)` is true.
  template <typename Take>
  void erase_if(Take take) {
    for (size_t i = 0; mask_ != 0 && i <= mask_;) {
      if (at_[i].kind != Kind::kNone && take(at_[i]))
        erase(&at_[i]);
      else
        ++i;
    }
  }

  template <typename See>
  void for_each(See see) {
    for (size_t i = 0; mask_ != 0 && i <= mask_; ++i) {
      if (at_[i].kind != Kind::kNone) see(at_[i]);
    }
  }

  void clear() {
    if (at_ != nullptr) munmap(at_, (mask_ + 1) * sizeof(Block));
    at_ = nullptr;
    mask_ = size_ = 0;
  }

 private:
  size_t place(Kind kind, uint64_t key) const {
    uint64_t hash = (key ^ static_cast<uint64_t>(kind) << 58) * 0x9E3779B97F4A7C15ull;
    return static_cast<size_t>(hash ^ hash >> 32) & mask_;
  }

  bool grow() {
    const size_t count = mask_ == 0 ? 1024 : 2 * (mask_ + 1);
    void* fresh =
        mmap(nullptr, count * sizeof(Block), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) return false;
    Blocks old = *this;
    at_ = static_cast<Block*>(fresh);
    mask_ = count - 1;
    size_ = 0;
    old.for_each([this](const Block& block) { insert(block); });
    old.clear();
    return true;
  }

  Block* at_ = nullptr;
  size_t mask_ = 0, size_ = 0;
};

}  // namespace headroom::guard
