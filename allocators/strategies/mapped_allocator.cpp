#include "allocators/strategies/mapped_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <exception>

#include "base/bytes.h"

namespace headroom {
namespace {

// Addresses cost nothing, and with several times the device's memory some run is always free: by Robson's
// bound ("Bounds for some functions concerning dynamic storage allocation", 1974) the logarithm of the ratio
// of block sizes is enough in the worst case, 2 to 3 times in practice.
constexpr int64_t kAddressesPerByte = 4;
constexpr int64_t kMaxAddresses = 1023 * kGiB;  // less than 2^31 units of 512 B
// 4 to 14 pages are wasted, and moving a page costs 40 us, regardless of its size. So pages that move often
// may grow until the waste is 1 %. "Often" means that as much as the reserved memory has moved; a program
// that repeats seldom reaches that before its pages are mapped wherever it needs them.
constexpr int64_t kPagesHeld = 1024;

VirtualMemory& virtual_memory_of(Device& device) {
  VirtualMemory* memory = device.memory().virtual_memory();
  if (memory == nullptr) {
    throw InvalidArgument(
        fmt::format("strategy mapped needs virtual memory, which {} does not have", device.description()));
  }
  return *memory;
}

int64_t page_of(int64_t wanted_bytes, int64_t granularity_bytes) {
  const auto granules =
      static_cast<uint64_t>(std::max<int64_t>(1, (wanted_bytes - 1) / granularity_bytes + 1));
  return granularity_bytes * static_cast<int64_t>(std::bit_ceil(granules));
}

int64_t addresses_for(Device& device) {
  return std::min(kMaxAddresses, kAddressesPerByte * device.memory().info().total);
}

}  // namespace

MappedAllocator::MappedAllocator(Device& device, std::string name, std::optional<Limit> limit,
                                 int64_t page_bytes)
    : Allocator(device, std::move(name), limit),
      device_(device),
      memory_(virtual_memory_of(device)),
      page_bytes_(page_of(page_bytes, memory_.granularity_bytes())),
      page_may_grow_(page_bytes == 0),
      addresses_(addresses_for(device)),
      pages_(memory_, [this](int64_t changed_bytes) { count_driver_call(changed_bytes); }) {}

MappedAllocator::~MappedAllocator() {
  try {
    for (const MappedLane* lane : lanes_.all()) device_.streams().record_event(lane->stream())->wait();
  } catch (const Error&) {  // a device that has failed does no more work
  }
}

Allocator::Block MappedAllocator::do_allocate(int64_t bytes, Stream stream) {
  MappedLane* lane = bytes > addresses_ ? nullptr : lane_of(stream);
  if (lane == nullptr) return {};
  lanes_.compare_clocks();
  Block block = lane->take(bytes);
  if (block.pointer != nullptr) return block;
  const int64_t rounded = round_up(bytes, SizeBins::kUnit);
  if (rounded > MappedLane::kSmallBytes) grow_pages(*lane);
  block = allocate_with_pages(*lane, rounded, Reach::kLane);
  if (block.pointer != nullptr || lanes_.all().size() == 1) return block;
  return allocate_with_pages(*lane, rounded, Reach::kAll);
}

int64_t MappedAllocator::do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  MappedLane* lane = lanes_.with(pointer);
  if (lane == nullptr) return 0;
  const int64_t block_bytes = lane->give_back(pointer, bytes);
  lanes_.note(*lane);
  if (block_bytes > 0 && !(lane->stream() == stream)) {
    try {
      follow(lane->stream(), stream);
    } catch (const Error&) {  // a device that has failed does no more work
    }
  }
  return block_bytes;
}

int64_t MappedAllocator::do_trim() noexcept {
  lanes_.compare_clocks();
  try {
    if (movable_bytes(lanes_.all()) > 0) wait_for_streams();
    for (MappedLane* lane : lanes_.all()) {
      lane->for_each_space([&](MappedSpace& space) {
        const int64_t all = space.range.idle_pages();
        for (auto idle = space.range.oldest_idle_pages(all); idle.count > 0;
             idle = space.range.oldest_idle_pages(all)) {
          pages_.lift(space, idle.first, idle.count, lanes_.now());
        }
      });
    }
  } catch (const std::exception&) {  // pages that are spare by now can still be released
  }
  int64_t bytes = 0;
  while (!pages_.spare().empty()) {
    bytes += pages_.bytes_of(pages_.spare().back());
    pages_.release(pages_.spare().back());
  }
  return bytes;
}

// The largest request without a new page: idle pages can be moved together under one block.
int64_t MappedAllocator::largest_free_block() const {
  int64_t largest = movable_bytes(lanes_.all());
  for (MappedLane* lane : lanes_.all()) {
    lane->for_each_space(
        [&](const MappedSpace& space) { largest = std::max(largest, space.range.largest_mapped_piece()); });
  }
  return largest;
}

// A run of pages in place is a segment; so is a spare page.
void MappedAllocator::do_snapshot(std::vector<SnapshotSegment>& segments) const {
  for (MappedLane* lane : lanes_.all()) {
    lane->for_each_space([&](const MappedSpace& space) {
      int64_t end = -1;
      space.range.for_each_piece([&](int64_t offset, int64_t bytes, bool live) {
        char* const pointer = space.base + offset;
        if (offset != end) segments.push_back({pointer, 0, {}});
        segments.back().bytes += bytes;
        segments.back().blocks.push_back({pointer, bytes, live ? bytes : 0,
                                          live ? SnapshotBlock::State::kActive : SnapshotBlock::State::kFree,
                                          space.stream});
        end = offset + bytes;
      });
    });
  }
  for (const MappedPages::Index page : pages_.spare()) {
    const int64_t bytes = pages_.bytes_of(page);
    segments.push_back({nullptr, bytes, {{.bytes = bytes}}});
  }
}

// Adds a space with larger pages to the lane. Blocks on smaller pages stay; idle smaller pages are released
// for larger ones when needed.
void MappedAllocator::grow_pages(MappedLane& lane) {
  const int64_t held_bytes = pages_.held_bytes();
  if (!page_may_grow_ || moved_bytes_ < held_bytes) return;
  const int64_t affordable = held_bytes / kPagesHeld / page_bytes_;
  if (affordable == 0) return;
  const int64_t page = page_bytes_ * static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(affordable)));
  if (page <= lane.large.back()->page_bytes) return;
  auto space =
      std::make_unique<MappedSpace>(memory_, lane.stream(), addresses_, page, MappedRange::Fit::kFirst);
  if (space->base != nullptr) {
    pages_.add(*space);
    lanes_.add(lane, *space);
    lane.large.push_back(std::move(space));
  }
  moved_bytes_ = 0;
}

// Null when there are no addresses for a new lane.
MappedLane* MappedAllocator::lane_of(Stream stream) {
  if (MappedLane* known = lanes_.find(stream)) return known;
  auto made = std::make_unique<MappedLane>(lanes_, memory_, pages_, stream, addresses_, page_bytes_);
  if (made->small.base == nullptr || made->large.front()->base == nullptr) return nullptr;
  made->for_each_space([this](MappedSpace& space) { pages_.add(space); });
  MappedLane* lane = made.get();
  add_lane(std::move(made));
  lanes_.add(*lane);
  return lane;
}

void MappedAllocator::wait_for_streams() {
  lanes_.for_each_freed_since(
      [&](const MappedLane& lane) { device_.streams().record_event(lane.stream())->wait(); });
  waited_at_ = lanes_.now();
}

}  // namespace headroom
