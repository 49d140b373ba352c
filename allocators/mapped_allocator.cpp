#include "allocators/mapped_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>

#include "runtime/core/bytes.h"

namespace headroom {
namespace {

// Addresses cost nothing, and with several times the device's memory there is always a run of them without
// pages: by Robson's bound ("Bounds for some functions concerning dynamic storage allocation", 1974) the
// logarithm of the ratio of block sizes would do in the worst case, and 2 to 3 times in practice.
constexpr int64_t kAddressesPerByte = 4;
constexpr int64_t kMostAddresses = 1023 * kGiB;  // less than 2^31 units of 512 B
// What is wasted is 4 to 14 pages, whatever their size, and a page costs 40 us to move, whatever its size. So
// pages that move often may be as large as wastes 1 %; "often" is once this share of what is held has moved.
constexpr int64_t kPagesHeld = 1024;
constexpr int64_t kShareMoved = 4;

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
  return std::min(kMostAddresses, kAddressesPerByte * device.memory().info().total);
}

}  // namespace

MappedAllocator::Space::Space(VirtualMemory& virtual_memory, int64_t range_bytes, int64_t bytes_of_page,
                              MappedRange::Fit fit)
    : memory(virtual_memory),
      page_bytes(bytes_of_page),
      bytes(round_up(range_bytes, page_bytes)),
      base(static_cast<char*>(memory.try_reserve_range(bytes))),
      range(bytes, page_bytes, fit) {}

MappedAllocator::Space::~Space() {
  memory.release_range(base, bytes);
}

// Only where pages are mapped already.
Allocator::Block MappedAllocator::Space::take(int64_t block_bytes) {
  const int64_t offset = range.take(block_bytes);
  return offset < 0 ? Block{} : Block{base + offset, block_bytes};
}

bool MappedAllocator::Space::has(const void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer), first = reinterpret_cast<uintptr_t>(base);
  return address >= first && address - first < static_cast<uintptr_t>(bytes);
}

MappedAllocator::Lane::Lane(VirtualMemory& memory, Stream stream, int64_t addresses, int64_t page_bytes)
    : StreamLane(stream), small(memory, addresses, page_bytes, MappedRange::Fit::kBest) {
  large.push_back(std::make_unique<Space>(memory, addresses, page_bytes, MappedRange::Fit::kFirst));
}

Allocator::Block MappedAllocator::Lane::take(int64_t bytes) {
  const int64_t rounded = round_up(bytes, SizeBins::kUnit);
  if (rounded <= kSmallBytes) return small.take(rounded);
  Block block;
  for (size_t i = large.size(); i > 0 && block.pointer == nullptr; --i) block = large[i - 1]->take(rounded);
  return block;
}

int64_t MappedAllocator::Lane::give_back(void* pointer, int64_t bytes) noexcept {
  Space* space = space_with(pointer, bytes);
  if (space == nullptr) return 0;
  const int64_t rounded = round_up(bytes, SizeBins::kUnit);
  const int64_t offset = static_cast<char*>(pointer) - space->base;
  return space->range.give_back(offset, rounded, ++now) ? rounded : 0;
}

MappedAllocator::Space* MappedAllocator::Lane::space_with(const void* pointer, int64_t bytes) {
  if (round_up(bytes, SizeBins::kUnit) <= kSmallBytes) return small.has(pointer) ? &small : nullptr;
  for (const std::unique_ptr<Space>& space : large) {
    if (space->has(pointer)) return space.get();
  }
  return nullptr;
}

MappedAllocator::MappedAllocator(Device& device, std::string name, std::optional<Limit> limit,
                                 int64_t page_bytes)
    : Allocator(device, std::move(name), limit),
      device_(device),
      memory_(virtual_memory_of(device)),
      page_bytes_(page_of(page_bytes, memory_.granularity_bytes())),
      page_may_grow_(page_bytes == 0),
      addresses_(addresses_for(device)) {}

MappedAllocator::~MappedAllocator() {
  try {
    wait_for_streams();
  } catch (const Error&) {  // a device that has failed does no more work
  }
  for_each_space([&](const Space& space) {
    for (size_t page = 0; page < space.pages.size(); ++page) {
      const PhysicalBlock& block = space.pages[page];
      if (block.bytes == 0) continue;
      memory_.unmap(space.base + static_cast<int64_t>(page) * space.page_bytes, block);
      memory_.release(block);
    }
  });
  for (const PhysicalBlock& block : spare_) memory_.release(block);
}

Allocator::Block MappedAllocator::do_allocate(int64_t bytes, Stream stream) {
  Lane* lane = lane_of(stream);
  if (lane == nullptr) return {};
  compare_clocks();
  Block block = lane->take(bytes);
  if (block.pointer != nullptr) return block;
  const int64_t rounded = round_up(bytes, SizeBins::kUnit);
  if (rounded <= kSmallBytes) return allocate_with_pages(lane->small, rounded);
  grow_pages(*lane);
  // Where large pages do not fit into what is left, smaller ones may.
  for (size_t i = lane->large.size(); i > 0 && block.pointer == nullptr; --i) {
    block = allocate_with_pages(*lane->large[i - 1], rounded);
  }
  return block;
}

int64_t MappedAllocator::do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  const auto found = std::find_if(own_lanes_.begin(), own_lanes_.end(),
                                  [&](Lane* lane) { return lane->has(pointer, bytes); });
  if (found == own_lanes_.end()) return 0;
  Lane& lane = **found;
  const int64_t block_bytes = lane.give_back(pointer, bytes);
  if (block_bytes > 0 && !(lane.stream() == stream)) {
    try {
      follow(lane.stream(), stream);
    } catch (const Error&) {  // a device that has failed does no more work
    }
  }
  return block_bytes;
}

int64_t MappedAllocator::do_trim() noexcept {
  compare_clocks();
  try {
    if (idle_bytes() > 0) wait_for_streams();
    for_each_space([&](Space& space) {
      const int64_t all = space.range.idle_pages();
      for (auto idle = space.range.oldest_idle_pages(all); idle.count > 0;
           idle = space.range.oldest_idle_pages(all)) {
        unmap_idle(space, idle);
      }
    });
  } catch (const std::exception&) {  // what is unmapped by now can still go back
  }
  int64_t bytes = 0;
  while (!spare_.empty()) {
    bytes += spare_.back().bytes;
    release_spare(spare_.size() - 1);
  }
  return bytes;
}

// What one request could have without a new page: idle pages can be brought together under one block.
int64_t MappedAllocator::largest_free_block() const {
  int64_t largest = movable_bytes();
  for_each_space(
      [&](const Space& space) { largest = std::max(largest, space.range.largest_mapped_piece()); });
  return largest;
}

// A run of mapped pages is a segment; so is what is mapped nowhere.
void MappedAllocator::do_snapshot(std::vector<SnapshotSegment>& segments) const {
  const auto add_range = [&](const Space& space, Stream stream) {
    int64_t end = -1;
    space.range.for_each_piece([&](int64_t offset, int64_t bytes, bool live) {
      char* const pointer = space.base + offset;
      if (offset != end) segments.push_back({pointer, 0, {}});
      segments.back().bytes += bytes;
      segments.back().blocks.push_back({pointer, bytes, live ? bytes : 0,
                                        live ? SnapshotBlock::State::kActive : SnapshotBlock::State::kFree,
                                        stream});
      end = offset + bytes;
    });
  };
  for (const Lane* lane : own_lanes_) {
    for (const std::unique_ptr<Space>& space : lane->large) add_range(*space, lane->stream());
    add_range(lane->small, lane->stream());
  }
  for (const PhysicalBlock& block : spare_) {
    segments.push_back({nullptr, block.bytes, {{.bytes = block.bytes}}});
  }
}

// A block under which pages had to be mapped; a null one, and nothing has changed, when there are not enough.
Allocator::Block MappedAllocator::allocate_with_pages(Space& space, int64_t bytes) {
  const MappedRange::Place place = space.range.find_place(bytes, movable_bytes() / space.page_bytes);
  if (place.offset < 0 || place.new_pages * space.page_bytes > reservable_bytes()) return {};
  missing_pages_.clear();
  space.range.occupy(place, bytes, missing_pages_);
  bool done = false;
  try {
    const int64_t frontier = (place.offset + bytes - 1) / space.page_bytes + 1;
    if (frontier > static_cast<int64_t>(space.pages.size()))
      space.pages.resize(static_cast<size_t>(frontier));
    done = collect_pages(space.page_bytes, place.missing_pages) && map_pages(space);
  } catch (...) {
    undo(space, place.offset, bytes);
    throw;
  }
  if (!done) undo(space, place.offset, bytes);
  return done ? Block{space.base + place.offset, bytes} : Block{};
}

// Larger pages for what the lane maps from now on. What lies on smaller ones stays there; they are given back
// for larger ones as they become idle and are needed.
void MappedAllocator::grow_pages(Lane& lane) {
  if (!page_may_grow_ || moved_bytes_ < held_bytes_ / kShareMoved) return;
  const int64_t affordable = held_bytes_ / kPagesHeld / page_bytes_;
  if (affordable == 0) return;
  const int64_t page = page_bytes_ * static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(affordable)));
  if (page <= lane.large.back()->page_bytes) return;
  auto space = std::make_unique<Space>(memory_, addresses_, page, MappedRange::Fit::kFirst);
  if (space->base != nullptr) lane.large.push_back(std::move(space));
  moved_bytes_ = 0;
}

// Sees to `count` spare pages of that size: new ones where what is idle does not suffice, which is tried
// first, because it can fail.
bool MappedAllocator::collect_pages(int64_t page_bytes, int64_t count) {
  spare_.reserve(spare_.size() + static_cast<size_t>(count));
  if (!create_pages(page_bytes, count - movable_bytes() / page_bytes)) return false;
  int64_t given_back = 0;  // of pages of other sizes
  for (;;) {
    const int64_t missing = count - spare_pages(page_bytes);
    if (missing <= 0) return true;
    if (given_back >= page_bytes) {
      if (!create_pages(page_bytes, 1)) return false;
      given_back -= page_bytes;
      continue;
    }
    const auto other = std::find_if(spare_.begin(), spare_.end(),
                                    [&](const PhysicalBlock& block) { return block.bytes != page_bytes; });
    if (other != spare_.end()) {
      given_back += other->bytes;
      release_spare(static_cast<size_t>(other - spare_.begin()));
      continue;
    }
    Space& from = with_oldest_idle();
    const int64_t wanted = (missing * page_bytes - given_back - 1) / from.page_bytes + 1;
    const auto idle = from.range.oldest_idle_pages(wanted);
    if (idle.freed_at > waited_at_) wait_for_streams();
    unmap_idle(from, idle);
    moved_bytes_ += idle.count * from.page_bytes;
  }
}

// All of them or, where one is refused, none.
bool MappedAllocator::create_pages(int64_t page_bytes, int64_t count) {
  for (int64_t created = 0; created < count; ++created) {
    const auto block = memory_.try_create(page_bytes);
    if (!block) {
      for (; created > 0; --created) release_spare(spare_.size() - 1);
      return false;
    }
    count_driver_call(page_bytes);
    held_bytes_ += page_bytes;
    spare_.push_back(*block);
  }
  return true;
}

void MappedAllocator::release_spare(size_t index) noexcept {
  const PhysicalBlock block = spare_[index];
  spare_.erase(spare_.begin() + static_cast<std::ptrdiff_t>(index));
  memory_.release(block);
  count_driver_call(-block.bytes);
  held_bytes_ -= block.bytes;
}

int64_t MappedAllocator::spare_pages(int64_t page_bytes) const {
  return std::count_if(spare_.begin(), spare_.end(),
                       [&](const PhysicalBlock& block) { return block.bytes == page_bytes; });
}

bool MappedAllocator::map_pages(Space& space) {
  for (const int64_t page : missing_pages_) {
    const auto spare = std::find_if(spare_.rbegin(), spare_.rend(), [&](const PhysicalBlock& block) {
      return block.bytes == space.page_bytes;
    });
    if (!memory_.try_map(space.base + page * space.page_bytes, *spare)) return false;
    count_driver_call(0);
    space.pages[static_cast<size_t>(page)] = *spare;
    spare_.erase(std::next(spare).base());
  }
  return true;
}

void MappedAllocator::unmap_idle(Space& space, const MappedRange::IdlePages& idle) {
  spare_.reserve(spare_.size() + static_cast<size_t>(idle.count));
  space.range.unmap(idle.first, idle.count);
  for (int64_t page = idle.first; page < idle.first + idle.count; ++page) {
    PhysicalBlock& block = space.pages[static_cast<size_t>(page)];
    memory_.unmap(space.base + page * space.page_bytes, block);
    count_driver_call(0);
    spare_.push_back(block);
    block = {};
  }
}

// Takes an allocation back of which some pages did not come; those that did stay as idle ones.
void MappedAllocator::undo(Space& space, int64_t offset, int64_t bytes) noexcept {
  space.range.give_back(offset, bytes, now_);
  for (const int64_t page : missing_pages_) {
    const auto index = static_cast<size_t>(page);
    if (index >= space.pages.size() || space.pages[index].bytes == 0) space.range.unmap(page, 1);
  }
}

MappedAllocator::Space& MappedAllocator::with_oldest_idle() {
  Space* oldest = nullptr;
  int64_t freed_at = 0;
  for_each_space([&](Space& space) {
    const MappedRange::IdlePages idle = space.range.oldest_idle_pages(1);
    if (idle.count == 0 || (oldest != nullptr && idle.freed_at >= freed_at)) return;
    oldest = &space;
    freed_at = idle.freed_at;
  });
  return *oldest;
}

int64_t MappedAllocator::idle_bytes() const {
  int64_t bytes = 0;
  for_each_space([&](const Space& space) { bytes += space.range.idle_pages() * space.page_bytes; });
  return bytes;
}

// What can be brought together under one block.
int64_t MappedAllocator::movable_bytes() const {
  int64_t bytes = idle_bytes();
  for (const PhysicalBlock& block : spare_) bytes += block.bytes;
  return bytes;
}

template <typename Visit>
void MappedAllocator::for_each_space(const Visit& visit) const {
  for (Lane* lane : own_lanes_) {
    for (const std::unique_ptr<Space>& space : lane->large) visit(*space);
    visit(lane->small);
  }
}

// Null when there are no addresses for a new one.
MappedAllocator::Lane* MappedAllocator::lane_of(Stream stream) {
  for (Lane* lane : own_lanes_) {
    if (lane->stream() == stream) return lane;
  }
  auto made = std::make_unique<Lane>(memory_, stream, addresses_, page_bytes_);
  if (made->small.base == nullptr || made->large.front()->base == nullptr) return nullptr;
  own_lanes_.reserve(own_lanes_.size() + 1);
  Lane* lane = made.get();
  add_lane(std::move(made));
  own_lanes_.push_back(lane);
  return lane;
}

// Lanes count apart, so that none waits for another's clock; what one gives back after this is later than
// what any gave back before (Lamport, "Time, clocks, and the ordering of events in a distributed system",
// 1978).
void MappedAllocator::compare_clocks() noexcept {
  for (const Lane* lane : own_lanes_) now_ = std::max(now_, lane->now);
  for (Lane* lane : own_lanes_) lane->now = now_;
}

// A page may only be unmapped once the work that used it is done.
void MappedAllocator::wait_for_streams() {
  for (const Lane* lane : own_lanes_) device_.record_event(lane->stream())->wait();
  waited_at_ = now_;
}

}  // namespace headroom
