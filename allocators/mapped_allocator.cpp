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

int64_t addresses_for(Device& device, int64_t page_bytes) {
  const int64_t total = device.memory().info().total;
  return round_up(std::min(kMostAddresses, kAddressesPerByte * total), page_bytes);
}

}  // namespace

MappedAllocator::Space::Space(VirtualMemory& virtual_memory, int64_t range_bytes, int64_t page_bytes,
                              MappedRange::Fit fit)
    : memory(virtual_memory),
      bytes(range_bytes),
      base(static_cast<char*>(memory.try_reserve_range(bytes))),
      range(bytes, page_bytes, fit) {}

MappedAllocator::Space::~Space() {
  memory.release_range(base, bytes);
}

MappedAllocator::Lane::Lane(VirtualMemory& memory, Stream stream, int64_t addresses, int64_t page_bytes)
    : StreamLane(stream),
      small(memory, addresses, page_bytes, MappedRange::Fit::kBest),
      large(memory, addresses, page_bytes, MappedRange::Fit::kFirst) {}

bool MappedAllocator::Lane::has(const void* pointer, int64_t bytes) {
  const Space& space = space_of(round_up(bytes, SizeBins::kUnit));
  const auto address = reinterpret_cast<uintptr_t>(pointer), base = reinterpret_cast<uintptr_t>(space.base);
  return address >= base && address - base < static_cast<uintptr_t>(space.bytes);
}

// Only where pages are mapped already.
Allocator::Block MappedAllocator::Lane::take(int64_t bytes) {
  const int64_t rounded = round_up(bytes, SizeBins::kUnit);
  Space& space = space_of(rounded);
  const int64_t offset = space.range.take(rounded);
  return offset < 0 ? Block{} : Block{space.base + offset, rounded};
}

int64_t MappedAllocator::Lane::give_back(void* pointer, int64_t bytes) noexcept {
  if (!has(pointer, bytes)) return 0;
  const int64_t rounded = round_up(bytes, SizeBins::kUnit);
  Space& space = space_of(rounded);
  const int64_t offset = static_cast<char*>(pointer) - space.base;
  return space.range.give_back(offset, rounded, ++now) ? rounded : 0;
}

MappedAllocator::MappedAllocator(Device& device, std::string name, std::optional<Limit> limit,
                                 int64_t page_bytes)
    : Allocator(device, std::move(name), limit),
      device_(device),
      memory_(virtual_memory_of(device)),
      page_bytes_(page_of(page_bytes, memory_.granularity_bytes())),
      addresses_(addresses_for(device, page_bytes_)) {}

MappedAllocator::~MappedAllocator() {
  try {
    wait_for_streams();
  } catch (const Error&) {  // a device that has failed does no more work
  }
  for_each_space([&](const Space& space) {
    for (size_t page = 0; page < space.pages.size(); ++page) {
      const PhysicalBlock& block = space.pages[page];
      if (block.bytes == 0) continue;
      memory_.unmap(space.base + static_cast<int64_t>(page) * page_bytes_, block);
      memory_.release(block);
    }
  });
  for (const PhysicalBlock& block : spare_) memory_.release(block);
}

Allocator::Block MappedAllocator::do_allocate(int64_t bytes, Stream stream) {
  Lane* lane = lane_of(stream);
  if (lane == nullptr) return {};
  compare_clocks();
  const int64_t rounded = round_up(bytes, SizeBins::kUnit);
  Space& space = lane->space_of(rounded);
  int64_t offset = space.range.take(rounded);
  if (offset < 0) offset = allocate_with_pages(space, rounded);
  if (offset < 0) return {};
  return {space.base + offset, rounded};
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
    if (idle_pages() > 0) wait_for_streams();
    for_each_space([&](Space& space) {
      const int64_t all = space.range.idle_pages();
      for (auto idle = space.range.oldest_idle_pages(all); idle.count > 0;
           idle = space.range.oldest_idle_pages(all)) {
        unmap_idle(space, idle);
      }
    });
  } catch (const std::exception&) {  // what is unmapped by now can still go back
  }
  const auto bytes = static_cast<int64_t>(spare_.size()) * page_bytes_;
  for (const PhysicalBlock& block : spare_) {
    memory_.release(block);
    count_driver_call(-page_bytes_);
  }
  spare_.clear();
  return bytes;
}

// What one request could have without a new page: idle pages can be brought together under one block.
int64_t MappedAllocator::largest_free_block() const {
  int64_t largest = (idle_pages() + static_cast<int64_t>(spare_.size())) * page_bytes_;
  for_each_space(
      [&](const Space& space) { largest = std::max(largest, space.range.largest_mapped_piece()); });
  return largest;
}

// The offset of a block under which pages had to be mapped; -1, and nothing has changed, when there are not
// enough.
int64_t MappedAllocator::allocate_with_pages(Space& space, int64_t bytes) {
  const auto spare = static_cast<int64_t>(spare_.size());
  const MappedRange::Place place = space.range.find_place(bytes, idle_pages() + spare);
  if (place.offset < 0 || place.new_pages * page_bytes_ > reservable_bytes()) return -1;
  missing_pages_.clear();
  space.range.occupy(place, bytes, missing_pages_);
  bool done = false;
  try {
    const int64_t frontier = (place.offset + bytes - 1) / page_bytes_ + 1;
    if (frontier > static_cast<int64_t>(space.pages.size()))
      space.pages.resize(static_cast<size_t>(frontier));
    done = collect_pages(place.missing_pages) && map_pages(space);
  } catch (...) {
    undo(space, place.offset, bytes);
    throw;
  }
  if (!done) undo(space, place.offset, bytes);
  return done ? place.offset : -1;
}

// Sees to `count` spare pages: new ones where idle ones do not suffice, which is tried first, because it can
// fail.
bool MappedAllocator::collect_pages(int64_t count) {
  spare_.reserve(static_cast<size_t>(count));
  const size_t spare_before = spare_.size();
  const auto have = static_cast<int64_t>(spare_before) + idle_pages();
  for (int64_t needed = count - have; needed > 0; --needed) {
    const auto block = memory_.try_create(page_bytes_);
    if (!block) {
      for (; spare_.size() > spare_before; spare_.pop_back()) {
        memory_.release(spare_.back());
        count_driver_call(-page_bytes_);
      }
      return false;
    }
    count_driver_call(page_bytes_);
    spare_.push_back(*block);
  }
  while (static_cast<int64_t>(spare_.size()) < count) {
    Space& from = with_oldest_idle();
    const auto idle = from.range.oldest_idle_pages(count - static_cast<int64_t>(spare_.size()));
    if (idle.freed_at > waited_at_) wait_for_streams();
    unmap_idle(from, idle);
  }
  return true;
}

bool MappedAllocator::map_pages(Space& space) {
  for (const int64_t page : missing_pages_) {
    if (!memory_.try_map(space.base + page * page_bytes_, spare_.back())) return false;
    count_driver_call(0);
    space.pages[static_cast<size_t>(page)] = spare_.back();
    spare_.pop_back();
  }
  return true;
}

void MappedAllocator::unmap_idle(Space& space, const MappedRange::IdlePages& idle) {
  spare_.reserve(spare_.size() + static_cast<size_t>(idle.count));
  space.range.unmap(idle.first, idle.count);
  for (int64_t page = idle.first; page < idle.first + idle.count; ++page) {
    PhysicalBlock& block = space.pages[static_cast<size_t>(page)];
    memory_.unmap(space.base + page * page_bytes_, block);
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

int64_t MappedAllocator::idle_pages() const {
  int64_t pages = 0;
  for_each_space([&](const Space& space) { pages += space.range.idle_pages(); });
  return pages;
}

template <typename Visit>
void MappedAllocator::for_each_space(const Visit& visit) const {
  for (Lane* lane : own_lanes_) {
    visit(lane->large);
    visit(lane->small);
  }
}

// Null when there are no addresses for a new one.
MappedAllocator::Lane* MappedAllocator::lane_of(Stream stream) {
  for (Lane* lane : own_lanes_) {
    if (lane->stream() == stream) return lane;
  }
  auto made = std::make_unique<Lane>(memory_, stream, addresses_, page_bytes_);
  if (made->small.base == nullptr || made->large.base == nullptr) return nullptr;
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
