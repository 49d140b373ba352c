// Allocation traces of real training runs, and their replay through a strategy on a simulated GPU. The traces
// lie outside the project (HEADROOM_SHARED, or ../shared next to the checkout).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "allocators/strategies/strategy.h"
#include "trace/trace.h"

namespace headroom {

struct Replay {
  Statistics statistics;
  int64_t high_water_bytes = 0;  // highest end of a block, counted from the lowest begin
  double driver_time_us = 0;
};

std::filesystem::path traces_folder();
// Returns the trace of that name; empty if it is not available.
std::vector<TraceEvent> read_trace(const std::string& name);
// The most bytes that are live at once.
int64_t largest_live_set(const std::vector<TraceEvent>& events);
// Replays one pass on the H200's profile; frees the blocks that the trace leaves live.
using MakeAllocator = std::function<std::unique_ptr<Allocator>(Device& device)>;
Replay replay_allocator(const std::vector<TraceEvent>& events, const MakeAllocator& make);
Replay replay(const std::vector<TraceEvent>& events, const StrategySettings& settings);

}  // namespace headroom
