#include "allocators/strategies/packed_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/bytes.h"

namespace headroom {
namespace {

constexpr int64_t kSegmentBytes = 2 * kMiB;  // cudaMalloc's page, for requests beside the plan

}  // namespace

RequestPlan plan_requests(const Trace& trace, const PackOptions& options) {
  if (trace.events.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    throw InvalidArgument(fmt::format("{}: {} events are too many to plan", trace.name, trace.events.size()));
  }
  std::vector<PlannedBlock> blocks(static_cast<size_t>(trace.blocks));
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (event.stream != trace.events[0].stream) {
      throw InvalidArgument(fmt::format(
          "{}: its requests come from several streams, whose order a plan cannot know", trace.name));
    }
    PlannedBlock& block = blocks[static_cast<size_t>(event.block)];
    if (event.allocates) {
      block = {round_up(event.bytes, Allocator::kAlignment), static_cast<int>(i),
               std::numeric_limits<int>::max()};
    } else {
      block.end = static_cast<int>(i);
    }
  }
  RequestPlan plan;
  plan.arena_bytes = pack(blocks, options).height_bytes;
  for (const PlannedBlock& block : blocks) plan.places.push_back({block.bytes, block.offset_bytes});
  return plan;
}

PackedAllocator::PackedAllocator(Device& device, std::string name, std::optional<Limit> limit,
                                 std::shared_ptr<const RequestPlan> plan)
    : SegmentAllocator(device, std::move(name), limit), plan_(std::move(plan)) {
  beside_.add_list();
  if (plan_->arena_bytes == 0) return;
  arena_ = static_cast<std::byte*>(reserve(plan_->arena_bytes));
  if (arena_ == nullptr) throw out_of_memory(plan_->arena_bytes);
}

PackedAllocator::~PackedAllocator() {
  if (arena_ != nullptr) unreserve(arena_, plan_->arena_bytes);
}

Allocator::Block PackedAllocator::do_allocate(int64_t bytes, Stream stream) {
  const Block planned = take_planned(bytes, stream);
  return planned.pointer != nullptr ? planned : take_beside(bytes, stream);
}

Allocator::Block PackedAllocator::take_planned(int64_t bytes, Stream stream) {
  if (plan_->places.empty()) return {};
  if (next_ == plan_->places.size()) next_ = 0;
  const auto [planned_bytes, offset] = plan_->places[next_];
  if (planned_bytes != bytes) return {};
  // A run that differs from the plan may still use a place that the plan considers free.
  const auto at = live_from(offset);
  if (at != live_.end() && at->first < offset + bytes) return {};
  if (arena_ == nullptr) arena_ = static_cast<std::byte*>(reserve(plan_->arena_bytes));
  if (arena_ == nullptr) return {};
  // The last user of each place is not kept, so this waits for all streams that freed blocks.
  follow_user(users_, last_user_, stream);
  if (last_user_ <= BlockStore::kSeveral) {
    users_.release(last_user_);
    last_user_ = user_of(stream);
  }
  live_.emplace_hint(at, offset, Live{bytes, user_of(stream)});
  ++next_;
  return {arena_ + offset, bytes};
}

Allocator::Block PackedAllocator::take_beside(int64_t bytes, Stream stream) {
  Index block = beside_.best_fit(BlockStore::kFirstList, bytes);
  if (block == BlockStore::kNone)
    block = add_segment(beside_, round_up(bytes, kSegmentBytes), BlockStore::kFirstList);
  if (block == BlockStore::kNone) return {};
  follow_users(beside_, block, stream);
  const Index taken =
      beside_.at(block).bytes > bytes ? beside_.take_head(block, bytes, bytes) : beside_.take(block, bytes);
  return handed_out(beside_, taken, user_of(stream));
}

int64_t PackedAllocator::do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  auto* const address = static_cast<std::byte*>(pointer);
  if (arena_ == nullptr || address < arena_ || address >= arena_ + plan_->arena_bytes) {
    return beside_.give_back(pointer, bytes, user_of(stream)).bytes;
  }
  const auto at = live_.find(address - arena_);
  if (at == live_.end() || at->second.bytes != bytes) return 0;
  live_.erase(at);
  last_user_ = users_.merge(last_user_, user_of(stream));
  return bytes;
}

int64_t PackedAllocator::do_trim() noexcept {
  int64_t given_back = SegmentAllocator::do_trim();
  if (arena_ != nullptr && live_.empty()) {
    unreserve(std::exchange(arena_, nullptr), plan_->arena_bytes);
    given_back += plan_->arena_bytes;
  }
  return given_back;
}

template <typename Visit>
void PackedAllocator::for_each_piece(Visit visit) const {
  if (arena_ == nullptr) return;
  int64_t end = 0;
  for (const auto& [offset, live] : live_) {
    if (offset > end) visit(end, offset - end, nullptr);
    visit(offset, live.bytes, &live);
    end = offset + live.bytes;
  }
  if (plan_->arena_bytes > end) visit(end, plan_->arena_bytes - end, nullptr);
}

int64_t PackedAllocator::largest_free_block() const {
  int64_t largest = SegmentAllocator::largest_free_block();
  for_each_piece([&](int64_t, int64_t bytes, const Live* live) {
    if (live == nullptr) largest = std::max(largest, bytes);
  });
  return largest;
}

void PackedAllocator::do_snapshot(std::vector<SnapshotSegment>& segments) const {
  SegmentAllocator::do_snapshot(segments);
  if (arena_ == nullptr) return;
  SnapshotSegment& segment = segments.emplace_back();
  segment.pointer = arena_;
  segment.bytes = plan_->arena_bytes;
  for_each_piece([&](int64_t offset, int64_t bytes, const Live* live) {
    SnapshotBlock& block = segment.blocks.emplace_back();
    block.pointer = arena_ + offset;
    block.bytes = bytes;
    if (live == nullptr) return;
    block.requested_bytes = bytes;
    block.state = SnapshotBlock::State::kActive;
    block.stream = stream_of_user(live->user);
  });
}

PackedAllocator::LiveBlocks::iterator PackedAllocator::live_from(int64_t offset_bytes) {
  const auto above = live_.upper_bound(offset_bytes);
  if (above == live_.begin()) return above;
  const auto below = std::prev(above);
  return below->first + below->second.bytes > offset_bytes ? below : above;
}

}  // namespace headroom
