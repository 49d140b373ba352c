#include "tools/torch/graph_pools.h"

#include <algorithm>
#include <new>

#include "base/bytes.h"

namespace headroom {
namespace {

// Sizes that differ a little share blocks; one of twice the size is left for others.
constexpr int64_t kUnit = 512;
constexpr int64_t kMaxRatio = 2;

}  // namespace

std::shared_ptr<GraphPools::Pool> GraphPools::find(Id id) const {
  const auto found = std::ranges::find_if(pools_, [&](const auto& pool) { return pool->id == id; });
  return found == pools_.end() ? nullptr : *found;
}

void GraphPools::begin(Id id, TakesStream takes_stream) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Pool> pool = find(id);
  if (pool == nullptr) {
    pool = pools_.emplace_back(std::make_shared<Pool>());
    pool->id = id;
  }
  ++pool->shares;
  if (!pool->takes_stream) ++capturing_;
  pool->takes_stream = std::move(takes_stream);
}

void GraphPools::end(Id id) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<Pool> pool = find(id);
  if (pool == nullptr || !pool->takes_stream) return;
  pool->takes_stream = {};
  --capturing_;
}

void GraphPools::release(Id id, Allocator& strategy) noexcept {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<Pool> pool = find(id);
  if (pool == nullptr || --pool->shares > 0) return;
  if (pool->takes_stream) --capturing_;
  for (const auto& [bytes, block] : pool->idle) strategy.deallocate(block.pointer, bytes, block.stream);
  pool->idle.clear();
  std::erase(pools_, pool);
}

void* GraphPools::allocate(Allocator& strategy, int64_t bytes, Stream stream) {
  if (capturing_.load(std::memory_order_relaxed) == 0 || bytes <= 0) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      pools_, [&](const auto& pool) { return pool->takes_stream && pool->takes_stream(stream); });
  if (found == pools_.end()) return nullptr;
  const std::shared_ptr<Pool>& pool = *found;
  const int64_t rounded = round_up(bytes, kUnit);
  auto idle = pool->idle.lower_bound(rounded);
  while (idle != pool->idle.end() && idle->first <= kMaxRatio * rounded && idle->second.stream != stream) {
    ++idle;
  }
  Block block;
  if (idle != pool->idle.end() && idle->first <= kMaxRatio * rounded) {
    block = idle->second;
    pool->idle.erase(idle);
  } else {
    block = {strategy.allocate(rounded, stream), rounded, stream};
  }
  used_.emplace(block.pointer, Used{pool, block});
  ++used_count_;
  return block.pointer;
}

bool GraphPools::deallocate(Allocator& strategy, void* pointer) noexcept {
  if (used_count_.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(pointer);
  if (found == used_.end()) return false;
  const auto [pool, block] = found->second;
  used_.erase(found);
  --used_count_;
  if (pool->shares == 0) {
    strategy.deallocate(block.pointer, block.bytes, block.stream);
    return true;
  }
  try {
    pool->idle.emplace(block.bytes, block);
  } catch (const std::bad_alloc&) {  // a graph may still write to it, so it stays out of use
  }
  return true;
}

}  // namespace headroom
