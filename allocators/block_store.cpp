#include "allocators/block_store.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace headroom {
namespace {

// Blocks lie at multiples of 256 B; 34 bits of these units are 4 TiB, more than any device has.
constexpr int kPlaceUnitBits = 8;
constexpr int kOffsetBits = 34;

constexpr size_t kFirstChains = 1024;

}  // namespace

BlockStore::BlockStore() : chains_(kFirstChains, kNone), shift_(64 - std::countr_zero(kFirstChains)) {}

int32_t BlockStore::add_list() {
  lists_.emplace_back();
  return static_cast<int32_t>(lists_.size() - 1);
}

BlockStore::Index BlockStore::add_segment(void* base, int64_t bytes, int32_t list) {
  return add_segment(base, bytes, list, segments_made_++ << kOffsetBits);
}

BlockStore::Index BlockStore::add_segment(void* base, int64_t bytes, int32_t list, uint64_t place) {
  prepare();
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
  return lists_[static_cast<size_t>(list)].best_fit(blocks_.data(), bytes);
}

BlockStore::Index BlockStore::first_fit(int32_t list, int64_t bytes) const {
  return lists_[static_cast<size_t>(list)].first_fit(blocks_.data(), bytes);
}

BlockStore::Index BlockStore::largest(int32_t list) const {
  return lists_[static_cast<size_t>(list)].largest(blocks_.data());
}

int64_t BlockStore::largest_free_bytes() const {
  int64_t result = 0;
  for (const FreeList& list : lists_) {
    const Index block = list.largest(blocks_.data());
    if (block != kNone) result = std::max(result, at(block).bytes);
  }
  return result;
}

BlockStore::Index BlockStore::take(Index block, int64_t requested_bytes) {
  prepare();
  erase_free(block);
  enter_handed_out(block, requested_bytes);
  return block;
}

BlockStore::Index BlockStore::take_head(Index block, int64_t bytes, int64_t requested_bytes) {
  prepare();
  erase_free(block);
  insert_free(split(block, bytes));
  enter_handed_out(block, requested_bytes);
  return block;
}

BlockStore::Index BlockStore::take_tail(Index block, int64_t bytes, int64_t requested_bytes) {
  prepare();
  erase_free(block);
  const Index tail = split(block, at(block).bytes - bytes);
  insert_free(block);
  enter_handed_out(tail, requested_bytes);
  return tail;
}

// Cuts a block to `bytes`; the result is the rest behind it, in no list yet.
inline BlockStore::Index BlockStore::split(Index block, int64_t bytes) noexcept {
  const Index rest = new_block();
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
  for (Index block = largest(from); block != kNone; block = largest(from)) {
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

inline void BlockStore::insert_free(Index block) noexcept {
  lists_[static_cast<size_t>(at(block).list)].insert(blocks_.data(), block);
}

inline void BlockStore::erase_free(Index block) noexcept {
  lists_[static_cast<size_t>(at(block).list)].erase(blocks_.data(), block);
}

inline void BlockStore::enter_handed_out(Index block, int64_t requested_bytes) noexcept {
  Block& record = at(block);
  record.requested_bytes = requested_bytes;
  Index& chain = chain_of(record.pointer);
  record.side[0] = chain;
  chain = block;
  ++handed_out_;
}

inline BlockStore::Index BlockStore::erase_handed_out(const void* pointer, int64_t requested_bytes) noexcept {
  Index* link = &chain_of(pointer);
  while (*link != kNone && at(*link).pointer != pointer) link = &at(*link).side[0];
  const Index block = *link;
  if (block == kNone || at(block).requested_bytes != requested_bytes) return kNone;
  *link = at(block).side[0];
  at(block).requested_bytes = 0;
  --handed_out_;
  return block;
}

inline BlockStore::Index BlockStore::new_block() noexcept {
  return std::exchange(unused_, at(unused_).next);
}

inline void BlockStore::recycle(Index block) noexcept {
  at(block).pointer = nullptr;
  at(block).next = std::exchange(unused_, block);
}

inline void BlockStore::prepare() {
  if (unused_ == kNone || 2 * (handed_out_ + 1) > chains_.size()) [[unlikely]]
    grow();
}

void BlockStore::grow() {
  if (unused_ == kNone) {
    blocks_.emplace_back();
    recycle(static_cast<Index>(blocks_.size() - 1));
  }
  if (2 * (handed_out_ + 1) > chains_.size()) grow_chains();
}

inline BlockStore::Index& BlockStore::chain_of(const void* pointer) noexcept {
  // Fibonacci hashing (Knuth, vol. 3, 6.4): multiply by 2^64 over the golden ratio, keep the upper bits.
  const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(pointer)) >> kPlaceUnitBits;
  return chains_[static_cast<size_t>((address * 0x9E3779B97F4A7C15u) >> shift_)];
}

void BlockStore::grow_chains() {
  std::vector<Index> old(2 * chains_.size(), kNone);
  std::swap(old, chains_);
  --shift_;
  for (Index block : old) {
    while (block != kNone) {
      const Index next = at(block).side[0];
      Index& chain = chain_of(at(block).pointer);
      at(block).side[0] = std::exchange(chain, block);
      block = next;
    }
  }
}

}  // namespace headroom
