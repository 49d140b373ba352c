#include "allocators/blocks/block_store.h"

#include <algorithm>
#include <bit>

namespace headroom {
namespace {

constexpr int kOffsetBits = 34;  // bits for places: 4 TiB, more than any device has
constexpr uint64_t kMaxSegments = uint64_t{1} << (64 - kOffsetBits);  // after these, places come again

constexpr size_t kFirstChains = 1024;

}  // namespace

BlockStore::BlockStore(Order order)
    : order_(order), chains_(kFirstChains, kNone), shift_(64 - std::countr_zero(kFirstChains)) {}

int32_t BlockStore::add_list() {
  lists_.emplace_back();
  return static_cast<int32_t>(lists_.size() - 1);
}

BlockStore::Index BlockStore::add_segment(void* base, int64_t bytes, int32_t list) {
  const uint64_t number = segments_made_++;
  const uint64_t rank = order_ == Order::kNewestFirst ? kMaxSegments - 1 - number : number;
  return add_segment(base, bytes, list, rank << kOffsetBits);
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
  users_.release(at(block).user);
  recycle(block);
}

BlockStore::Index BlockStore::best_fit(int32_t list, int64_t bytes) {
  const FreeList::Place place = lists_[static_cast<size_t>(list)].best_fit(blocks_.data(), bytes);
  return place.link == nullptr ? kNone : *place.link;
}

BlockStore::Index BlockStore::largest(int32_t list) const {
  return lists_[static_cast<size_t>(list)].largest(blocks_.data());
}

int64_t BlockStore::largest_free_bytes() const {
  int64_t result = by_address_.largest_bytes();
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

void BlockStore::add_users(Index block, const BlockStore& other, Index others_block) noexcept {
  int32_t& user = at(block).user;
  const int32_t more = other.at(others_block).user;
  if (UserSets::is_set(more)) {
    other.users_.for_each(more, [&](int32_t each) { user = users_.merge(user, each); });
  } else {
    user = users_.merge(user, more);
  }
}

BlockStore::Index BlockStore::move_part(Index block, int64_t offset, int64_t bytes, int32_t list) {
  // Adds two records for the parts before and after, so that the rest cannot fail.
  while (unused_ == kNone || at(unused_).next == kNone) add_record();
  erase_free(block);
  if (UserSets::is_set(at(block).user)) replace_user(block, kSeveral);  // three parts cannot own one set
  if (offset > 0) {
    const Index rest = split(block, offset);
    insert_free(block);
    block = rest;
  }
  if (bytes < at(block).bytes) insert_free(split(block, bytes));
  at(block).list = list;
  at(block).user = kNobody;
  return join_and_list(block);
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
  head.user = users_.merge(head.user, at(gone).user);
  head.next = at(gone).next;
  if (head.next != kNone) at(head.next).previous = block;
  recycle(gone);
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

void BlockStore::add_record() {
  if (order_ == Order::kByAddress) by_address_.prepare(blocks_.size() + 1);
  blocks_.emplace_back();
  recycle(static_cast<Index>(blocks_.size() - 1));
}

void BlockStore::grow() {
  if (unused_ == kNone) add_record();
  if (2 * (handed_out_ + 1) > chains_.size()) grow_chains();
}

void BlockStore::grow_chains() {
  std::vector<Index, LargePages<Index>> old(2 * chains_.size(), kNone);
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
