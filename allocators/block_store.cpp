#include "allocators/block_store.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace headroom {
namespace {

// Blocks lie at multiples of 256 B; 34 bits of these units are 4 TiB, more than any device has.
constexpr int kPlaceUnitBits = 8;
constexpr int kOffsetBits = 34;

constexpr size_t kFirstBlockSlots = 1024;

}  // namespace

int32_t BlockStore::add_list() {
  lists_.emplace_back();
  return static_cast<int32_t>(lists_.size() - 1);
}

BlockStore::Index BlockStore::add_segment(void* base, int64_t bytes, int32_t list) {
  return add_segment(base, bytes, list, segments_made_++ << kOffsetBits);
}

BlockStore::Index BlockStore::add_segment(void* base, int64_t bytes, int32_t list, uint64_t place) {
  const Index block = new_block();
  at(block) = {.pointer = static_cast<std::byte*>(base), .bytes = bytes, .place = place, .list = list};
  insert_free(block);
  return block;
}

void BlockStore::remove_segment(Index block) noexcept {
  erase_free(block);
  recycle(block);
}

BlockStore::Index BlockStore::best_fit(int32_t list, int64_t bytes) const {
  const FreeList::Entry* found = lists_[static_cast<size_t>(list)].best_fit(bytes);
  return found == nullptr ? kNone : found->block;
}

BlockStore::Index BlockStore::first_fit(int32_t list, int64_t bytes) const {
  const FreeList::Entry* found = lists_[static_cast<size_t>(list)].first_fit(bytes);
  return found == nullptr ? kNone : found->block;
}

int64_t BlockStore::largest_free_bytes() const {
  int64_t result = 0;
  for (const FreeList& list : lists_) {
    if (!list.empty()) result = std::max(result, list.largest()->bytes);
  }
  return result;
}

BlockStore::Index BlockStore::take(Index block, int64_t requested_bytes) {
  erase_free(block);
  enter_handed_out(block, requested_bytes);
  return block;
}

BlockStore::Index BlockStore::take_head(Index block, int64_t bytes, int64_t requested_bytes) {
  erase_free(block);
  insert_free(split(block, bytes));
  enter_handed_out(block, requested_bytes);
  return block;
}

BlockStore::Index BlockStore::take_tail(Index block, int64_t bytes, int64_t requested_bytes) {
  erase_free(block);
  const Index tail = split(block, at(block).bytes - bytes);
  insert_free(block);
  enter_handed_out(tail, requested_bytes);
  return tail;
}

// Cuts a block to `bytes`; the result is the rest behind it, in no list yet.
inline BlockStore::Index BlockStore::split(Index block, int64_t bytes) {
  const Index rest = new_block();  // may move the records, so no reference before it
  Block& head = at(block);
  at(rest) = {.pointer = head.pointer + bytes,
              .bytes = head.bytes - bytes,
              .place = head.place + (static_cast<uint64_t>(bytes) >> kPlaceUnitBits),
              .list = head.list,
              .user = head.user,
              .previous = block,
              .next = head.next};
  if (head.next != kNone) at(head.next).previous = rest;
  head.next = rest;
  head.bytes = bytes;
  return rest;
}

BlockStore::Returned BlockStore::give_back(const void* pointer, int64_t requested_bytes,
                                           int32_t user) noexcept {
  const Index block = erase_handed_out(pointer, requested_bytes);
  return block == kNone ? Returned{} : put_back(block, user);
}

BlockStore::Returned BlockStore::give_back(const void* pointer, int64_t requested_bytes, int32_t user,
                                           int32_t list) noexcept {
  const Index block = erase_handed_out(pointer, requested_bytes);
  if (block == kNone) return {};
  at(block).list = list;
  return put_back(block, user);
}

inline BlockStore::Returned BlockStore::put_back(Index block, int32_t user) noexcept {
  at(block).user = user;
  const int64_t bytes = at(block).bytes;
  return {join_and_list(block), bytes};
}

void BlockStore::move_all(int32_t from, int32_t to) {
  while (const FreeList::Entry* entry = list(from).largest()) {
    const Index block = entry->block;
    erase_free(block);
    at(block).list = to;
    join_and_list(block);
  }
}

inline BlockStore::Index BlockStore::join_and_list(Index block) noexcept {
  const int32_t list = at(block).list;
  const Index next = at(block).next;
  if (is_free_in(next, list)) {
    erase_free(next);
    absorb_next(block);
  }
  const Index previous = at(block).previous;
  if (is_free_in(previous, list)) {
    erase_free(previous);
    absorb_next(previous);
    block = previous;
  }
  insert_free(block);
  return block;
}

inline void BlockStore::absorb_next(Index block) noexcept {
  Block& head = at(block);
  const Index gone = head.next;
  head.bytes += at(gone).bytes;
  if (head.user == kNobody) {
    head.user = at(gone).user;
  } else if (at(gone).user != kNobody && at(gone).user != head.user) {
    head.user = kSeveral;
  }
  head.next = at(gone).next;
  if (head.next != kNone) at(head.next).previous = block;
  recycle(gone);
}

inline void BlockStore::insert_free(Index block) {
  const Block& record = at(block);
  lists_[static_cast<size_t>(record.list)].insert({record.bytes, record.place, block});
}

inline void BlockStore::erase_free(Index block) noexcept {
  const Block& record = at(block);
  lists_[static_cast<size_t>(record.list)].erase({record.bytes, record.place, block});
}

inline void BlockStore::enter_handed_out(Index block, int64_t requested_bytes) {
  if (2 * (handed_out_ + 1) > slots_.size()) grow_slots();
  Block& record = at(block);
  record.requested_bytes = requested_bytes;
  const size_t mask = slots_.size() - 1;
  size_t slot = home_of(record.pointer);
  while (slots_[slot].pointer != nullptr) slot = (slot + 1) & mask;
  slots_[slot] = {record.pointer, block};
  ++handed_out_;
}

inline BlockStore::Index BlockStore::erase_handed_out(const void* pointer, int64_t requested_bytes) noexcept {
  if (slots_.empty()) return kNone;
  const size_t mask = slots_.size() - 1;
  size_t slot = home_of(pointer);
  while (slots_[slot].pointer != pointer) {
    if (slots_[slot].pointer == nullptr) return kNone;
    slot = (slot + 1) & mask;
  }
  const Index block = slots_[slot].block;
  if (at(block).requested_bytes != requested_bytes) return kNone;
  at(block).requested_bytes = 0;
  --handed_out_;
  // An entry behind the hole moves into it unless it would then lie before its home (Knuth, vol. 3, 6.4 R).
  for (size_t next = (slot + 1) & mask; slots_[next].pointer != nullptr; next = (next + 1) & mask) {
    const size_t home = home_of(slots_[next].pointer);
    if (((next - home) & mask) >= ((next - slot) & mask)) {
      slots_[slot] = slots_[next];
      slot = next;
    }
  }
  slots_[slot] = {};
  return block;
}

inline BlockStore::Index BlockStore::new_block() {
  if (unused_.empty()) {
    blocks_.emplace_back();
    // So that recycling, which must not fail, never has to grow the list.
    unused_.reserve(blocks_.capacity());
    return static_cast<Index>(blocks_.size() - 1);
  }
  const Index block = unused_.back();
  unused_.pop_back();
  return block;
}

inline void BlockStore::recycle(Index block) noexcept {
  at(block).pointer = nullptr;
  unused_.push_back(block);
}

inline size_t BlockStore::home_of(const void* pointer) const {
  // Fibonacci hashing (Knuth, vol. 3, 6.4): multiply by 2^64 over the golden ratio, keep the upper bits.
  const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(pointer)) >> kPlaceUnitBits;
  return static_cast<size_t>((address * 0x9E3779B97F4A7C15u) >> shift_);
}

void BlockStore::grow_slots() {
  std::vector<Slot> old(slots_.empty() ? kFirstBlockSlots : 2 * slots_.size());
  std::swap(old, slots_);
  shift_ = 64 - std::countr_zero(slots_.size());
  for (const Slot& entry : old) {
    if (entry.pointer == nullptr) continue;
    size_t slot = home_of(entry.pointer);
    while (slots_[slot].pointer != nullptr) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = entry;
  }
}

}  // namespace headroom
