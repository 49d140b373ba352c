#include "allocators/strategies/bfc_allocator.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"

namespace headroom {
namespace {

// All from TensorFlow's bfc_allocator.cc, without its bins: they do not change which block is found.
constexpr int64_t kFirstRegionBytes = 2 * kMiB;
constexpr int64_t kLargestWasteBytes = 128 * kMiB;
constexpr double kBackOff = 0.9;

constexpr int64_t kLargestRegionBytes = int64_t{1} << 61;  // doubling must end before it overflows

}  // namespace

BfcAllocator::BfcAllocator(Device& device, std::string name, std::optional<Limit> limit, Growth growth)
    : SegmentAllocator(device, std::move(name), limit) {
  store_.add_list();
  if (growth == Growth::kDoubling) {
    next_region_bytes_ = std::min(kFirstRegionBytes, std::max(reservable_bytes(), kAlignment));
    return;
  }
  next_region_bytes_ = reservable_bytes();
  if (!limit) next_region_bytes_ = std::min(next_region_bytes_, device.memory().info().free);
  if (!extend(kAlignment)) throw out_of_memory(std::max(next_region_bytes_, kAlignment));
}

std::vector<int64_t> BfcAllocator::region_bytes() const {
  std::vector<std::pair<uint64_t, int64_t>> regions;  // by place, which is by age
  store_.for_each_segment([&](Index block) {
    regions.emplace_back(store_.at(block).place, 0);
    for (; block != BlockStore::kNone; block = store_.at(block).next) {
      regions.back().second += store_.at(block).bytes;
    }
  });
  std::ranges::sort(regions);
  std::vector<int64_t> result;
  for (const auto& [place, bytes] : regions) result.push_back(bytes);
  return result;
}

Allocator::Block BfcAllocator::do_allocate(int64_t bytes, Stream stream) {
  Index block = store_.best_fit(BlockStore::kFirstList, bytes);
  if (block == BlockStore::kNone && extend(bytes)) block = store_.best_fit(BlockStore::kFirstList, bytes);
  if (block == BlockStore::kNone) return {};
  follow_users(store_, block, stream);
  const int64_t size = store_.at(block).bytes;
  const bool cuts = size >= 2 * bytes || size - bytes >= kLargestWasteBytes;
  return handed_out(store_, cuts ? store_.take_head(block, bytes, bytes) : store_.take(block, bytes),
                    user_of(stream));
}

int64_t BfcAllocator::do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  return store_.give_back(pointer, bytes, user_of(stream)).bytes;
}

bool BfcAllocator::extend(int64_t bytes) {
  const int64_t available = reservable_bytes();
  if (bytes > available) return false;
  bool grown = false;
  while (next_region_bytes_ < bytes) {  // ends: no request is above 2^60
    next_region_bytes_ *= 2;
    grown = true;
  }
  int64_t size = std::min(next_region_bytes_, available);
  while (add_segment(store_, size, BlockStore::kFirstList) == BlockStore::kNone) {
    const int64_t less = round_up(static_cast<int64_t>(static_cast<double>(size) * kBackOff), kAlignment);
    // Below ten units of alignment rounding up changes nothing, and TensorFlow's loop would not end.
    if (less < bytes || less == size) return false;
    size = less;
  }
  if (!grown) next_region_bytes_ = std::min(next_region_bytes_ * 2, kLargestRegionBytes);
  return true;
}

}  // namespace headroom
