// A history in the formats of other viewers. Knows no files.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/enum_names.h"
#include "tools/report/history.h"

namespace headroom::report {

enum class ExchangeFormat : uint8_t { kMemoryViz, kSpeedscope, kPerfetto };
constexpr auto value_names(ExchangeFormat) {
  return std::to_array<std::string_view>({"memory_viz", "speedscope", "perfetto"});
}

// PyTorch's snapshot for pytorch.org/memory_viz: the allocations with their stacks, and the segments.
std::string memory_viz(const History& history);

// For speedscope.app: the live memory at the peak, by stack.
std::string speedscope(const History& history);

std::string exchange(const History& history, ExchangeFormat format);

}  // namespace headroom::report
