// Lists the memory of a program at its peak by category, module and line. Knows no device and no file.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/memory_category.h"
#include "trace/trace.h"

namespace headroom {

// Names of modules, lines or categories, and the live bytes of each.
using MemoryShares = std::vector<std::pair<std::string, int64_t>>;

inline constexpr std::string_view kNoModule = "no module", kNoLine = "no line";

// The live set of a trace when it is largest.
struct LiveSet {
  std::array<int64_t, kMemoryCategoryNames.size()> by_category{};
  // The largest first. Memory without a module, or without a line, comes last, as kNoModule or kNoLine: the
  // shares add up to the live memory. Empty if the trace names none at all. Weights, gradients and optimizer
  // state count for the module of their parameter, as "layers.0.linear" of "layers.0.linear.weight"; what a
  // module of a package makes counts for the package's line.
  MemoryShares by_module, by_line;
  std::string where;  // the allocation that made it the largest: what, its module and line
};
// For blocks that hold parts, such as the arena of a plan, counts the parts that are live at once.
LiveSet largest_live_set(const Trace& trace);

// The parts of an allocation of a trace that are known: "aten::convolution in layer1.conv2 at train.py:31".
std::string event_text(const Trace& trace, const TraceEvent& event);
// Returns the place of the event at that position; if the trace does not know its line, also the step, its
// phase and the last line before: "step 26, backward, after train.py:31".
std::string place_text(const Trace& trace, int64_t position);

}  // namespace headroom
