#include "allocators/bfc_allocator.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>

#include "runtime/core/bytes.h"

namespace headroom {
namespace {

// All from TensorFlow's bfc_allocator.cc.
constexpr int64_t kFirstRegionBytes = 2 * kMiB;
constexpr int64_t kLargestWasteBytes = 128 * kMiB;
constexpr double kBackOff = 0.9;

constexpr int64_t kLargestRegionBytes = int64_t{1} << 61;  // doubling has to end before it overflows

}  // namespace

int BfcAllocator::bin_of(int64_t bytes) {
  const auto units = static_cast<uint64_t>(std::max(bytes, kAlignment) / kAlignment);
  return std::min(kBins - 1, static_cast<int>(std::bit_width(units)) - 1);
}

BfcAllocator::BfcAllocator(Device& device, std::string name, std::optional<Limit> limit, Growth growth)
    : Allocator(device, std::move(name), limit), bins_(kBins, &nodes_), live_(&nodes_) {
  if (growth == Growth::kDoubling) {
    next_region_bytes_ = std::min(kFirstRegionBytes, std::max(reservable_bytes(), kAlignment));
    return;
  }
  next_region_bytes_ = reservable_bytes();
  if (!limit) next_region_bytes_ = std::min(next_region_bytes_, device.memory().info().free);
  if (!extend(kAlignment)) throw out_of_memory(std::max(next_region_bytes_, kAlignment));
}

BfcAllocator::~BfcAllocator() {
  for (const Region& region : regions_) {
    if (region.base != nullptr) unreserve(region.base, region.bytes);
  }
}

std::vector<int64_t> BfcAllocator::region_bytes() const {
  std::vector<Region> held;
  std::copy_if(regions_.begin(), regions_.end(), std::back_inserter(held),
               [](const Region& region) { return region.base != nullptr; });
  std::sort(held.begin(), held.end(), [](const Region& a, const Region& b) { return a.number < b.number; });
  std::vector<int64_t> result;
  for (const Region& region : held) result.push_back(region.bytes);
  return result;
}

Allocator::Block BfcAllocator::do_allocate(int64_t bytes, Stream stream) {
  const Block block = take_best_fit(bytes, stream);
  if (block.pointer != nullptr || !extend(bytes)) return block;
  return take_best_fit(bytes, stream);
}

void BfcAllocator::Users::join(const Users& other) {
  if (other.kind == Kind::kNone) return;
  if (kind == Kind::kNone) {
    *this = other;
  } else if (other.kind == Kind::kMany || !(stream == other.stream)) {
    kind = Kind::kMany;
  }
}

void BfcAllocator::follow_users(const Users& users, Stream stream) {
  if (users.kind == Users::Kind::kOne) {
    follow(stream, users.stream);
  } else if (users.kind == Users::Kind::kMany) {
    for (const Stream other : streams_) follow(stream, other);
  }
}

Allocator::Block BfcAllocator::take_best_fit(int64_t bytes, Stream stream) {
  for (size_t bin = static_cast<size_t>(bin_of(bytes)); bin < bins_.size(); ++bin) {
    const auto found = bins_[bin].lower_bound(FreeKey{bytes, 0, 0, 0});
    if (found == bins_[bin].end()) continue;
    const Index index = found->chunk;
    follow_users(at(index).users, stream);
    bins_[bin].erase(found);
    const int64_t size = at(index).bytes;
    if (size >= 2 * bytes || size - bytes >= kLargestWasteBytes) split(index, bytes);
    Chunk& chunk = at(index);
    chunk.requested_bytes = bytes;
    void* pointer = pointer_of(chunk);
    live_.emplace(pointer, index);
    return {pointer, chunk.bytes};
  }
  return {};
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
  void* base = reserve(size);
  while (base == nullptr) {
    const int64_t less = round_up(static_cast<int64_t>(static_cast<double>(size) * kBackOff), kAlignment);
    // Rounding up stands still below ten units of alignment, where TensorFlow's loop would not end.
    if (less < bytes || less == size) return false;
    size = less;
    base = reserve(size);
  }
  if (!grown) next_region_bytes_ = std::min(next_region_bytes_ * 2, kLargestRegionBytes);

  size_t slot = 0;
  while (slot < regions_.size() && regions_[slot].base != nullptr) ++slot;
  if (slot == regions_.size()) regions_.emplace_back();
  const Index index = new_chunk();
  regions_[slot] = {base, size, regions_made_++, index};
  at(index) = {.bytes = size, .region = static_cast<Index>(slot), .users = {}};
  insert_free(index);
  return true;
}

int64_t BfcAllocator::do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  const auto found = live_.find(pointer);
  if (found == live_.end() || at(found->second).requested_bytes != bytes) return 0;
  Index index = found->second;
  live_.erase(found);
  const int64_t block_bytes = at(index).bytes;
  at(index).requested_bytes = 0;
  at(index).users = {Users::Kind::kOne, stream};
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) streams_.push_back(stream);
  const Index next = at(index).next;
  if (next != kNone && at(next).requested_bytes == 0) {
    erase_free(next);
    absorb_next(index);
  }
  const Index previous = at(index).previous;
  if (previous != kNone && at(previous).requested_bytes == 0) {
    erase_free(previous);
    absorb_next(previous);
    index = previous;
  }
  insert_free(index);
  return block_bytes;
}

int64_t BfcAllocator::do_trim() noexcept {
  int64_t given_back = 0;
  for (Region& region : regions_) {
    if (region.base == nullptr) continue;
    const Chunk& first = at(region.first);
    if (first.requested_bytes != 0 || first.bytes != region.bytes) continue;
    erase_free(region.first);
    recycle_chunk(region.first);
    unreserve(region.base, region.bytes);
    given_back += region.bytes;
    region = {};
  }
  return given_back;
}

int64_t BfcAllocator::largest_free_block() const {
  for (auto bin = bins_.rbegin(); bin != bins_.rend(); ++bin) {
    if (!bin->empty()) return bin->rbegin()->bytes;
  }
  return 0;
}

// Cuts the chunk to `bytes`; what remains becomes a free chunk after it.
void BfcAllocator::split(Index chunk, int64_t bytes) {
  const Index rest = new_chunk();  // may move the records, so no reference before it
  Chunk& head = at(chunk);
  at(rest) = {.offset_bytes = head.offset_bytes + bytes,
              .bytes = head.bytes - bytes,
              .region = head.region,
              .previous = chunk,
              .next = head.next,
              .users = head.users};
  if (head.next != kNone) at(head.next).previous = rest;
  head.next = rest;
  head.bytes = bytes;
  insert_free(rest);
}

void BfcAllocator::absorb_next(Index chunk) {
  Chunk& head = at(chunk);
  const Index gone = head.next;
  head.bytes += at(gone).bytes;
  head.users.join(at(gone).users);
  head.next = at(gone).next;
  if (head.next != kNone) at(head.next).previous = chunk;
  recycle_chunk(gone);
}

void BfcAllocator::insert_free(Index chunk) {
  bins_[static_cast<size_t>(bin_of(at(chunk).bytes))].insert(key_of(chunk));
}

void BfcAllocator::erase_free(Index chunk) {
  bins_[static_cast<size_t>(bin_of(at(chunk).bytes))].erase(key_of(chunk));
}

BfcAllocator::Index BfcAllocator::new_chunk() {
  if (unused_chunks_.empty()) {
    chunks_.emplace_back();
    // So that recycling, which must not fail, never has to grow the list.
    unused_chunks_.reserve(chunks_.capacity());
    return static_cast<Index>(chunks_.size() - 1);
  }
  const Index index = unused_chunks_.back();
  unused_chunks_.pop_back();
  return index;
}

void BfcAllocator::recycle_chunk(Index chunk) {
  unused_chunks_.push_back(chunk);
}

BfcAllocator::FreeKey BfcAllocator::key_of(Index chunk) const {
  const Chunk& record = at(chunk);
  return {record.bytes, regions_[static_cast<size_t>(record.region)].number, record.offset_bytes, chunk};
}

void* BfcAllocator::pointer_of(const Chunk& chunk) const {
  return static_cast<std::byte*>(regions_[static_cast<size_t>(chunk.region)].base) + chunk.offset_bytes;
}

}  // namespace headroom
