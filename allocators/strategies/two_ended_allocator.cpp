#include "allocators/strategies/two_ended_allocator.h"

#include <utility>

namespace headroom {

TwoEndedAllocator::TwoEndedAllocator(Device& device, std::string name, Limit limit, int64_t large_bytes)
    : SegmentAllocator(device, std::move(name), limit), large_bytes_(large_bytes) {
  store_.add_list();
  if (!take_segment(kAlignment)) throw out_of_memory(kAlignment);
}

Allocator::Block TwoEndedAllocator::do_allocate(int64_t bytes, Stream stream) {
  // It may have been released while nothing was live.
  if (segment_bytes() == 0 && !take_segment(bytes)) return {};
  const Index block = store_.best_fit(BlockStore::kFirstList, bytes);
  if (block == BlockStore::kNone) return {};
  follow_users(store_, block, stream);
  if (store_.at(block).bytes == bytes) return handed_out(store_, store_.take(block, bytes), user_of(stream));
  return handed_out(
      store_,
      bytes < large_bytes_ ? store_.take_tail(block, bytes, bytes) : store_.take_head(block, bytes, bytes),
      user_of(stream));
}

int64_t TwoEndedAllocator::do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  return store_.give_back(pointer, bytes, user_of(stream)).bytes;
}

bool TwoEndedAllocator::take_segment(int64_t least_bytes) {
  for (int64_t size = reservable_bytes(); size >= least_bytes;
       size = size / 10 * 9 / kAlignment * kAlignment) {
    if (add_segment(store_, size, BlockStore::kFirstList) != BlockStore::kNone) return true;
  }
  return false;
}

}  // namespace headroom
