#include "tests/allocators/real_traces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <unordered_map>

#include "device/host/simulated_gpu.h"
#include "tests/shared_data.h"
#include "trace/read_trace.h"

namespace headroom {

std::filesystem::path traces_folder() {
  return shared_data() / "traces";
}

std::vector<TraceEvent> read_trace(const std::string& name) {
  const std::filesystem::path path = traces_folder() / (name + ".csv.gz");
  if (!std::filesystem::exists(path)) return {};
  return read_traces(path.string()).front().events;
}

int64_t largest_live_set(const std::vector<TraceEvent>& events) {
  int64_t live = 0, largest = 0;
  for (const TraceEvent& event : events) {
    live += event.allocates ? event.bytes : -event.bytes;
    largest = std::max(largest, live);
  }
  return largest;
}

Replay replay(const std::vector<TraceEvent>& events, const StrategySettings& settings) {
  return replay_allocator(events, [&](Device& device) { return make_allocator(settings, device); });
}

Replay replay_allocator(const std::vector<TraceEvent>& events, const MakeAllocator& make) {
  SimulatedGpu gpu(find_profile("h200"));
  gpu.initialize();
  Replay result;
  {
    const auto allocator = make(gpu);
    std::unordered_map<int64_t, std::pair<void*, int64_t>> live;
    uintptr_t lowest = UINTPTR_MAX, highest = 0;
    for (const TraceEvent& event : events) {
      if (event.allocates) {
        void* pointer = allocator->allocate(event.bytes);
        live[event.block] = {pointer, event.bytes};
        if (pointer == nullptr) continue;
        const auto address = reinterpret_cast<uintptr_t>(pointer);
        lowest = std::min(lowest, address);
        highest = std::max(highest, address + static_cast<uintptr_t>(event.bytes));
      } else if (const auto found = live.find(event.block); found != live.end()) {
        allocator->deallocate(found->second.first, found->second.second);
        live.erase(found);
      }
    }
    for (const auto& [block, memory] : live) allocator->deallocate(memory.first, memory.second);
    result.statistics = allocator->statistics();
    result.high_water_bytes = static_cast<int64_t>(highest - lowest);
    result.driver_time_us = gpu.memory().driver_time_us();
  }
  EXPECT_EQ(gpu.memory().info().process, gpu.profile().kept_context_bytes());
  return result;
}

}  // namespace headroom
