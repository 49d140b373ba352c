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

// PyTorch's snapshot for pytorch.org/memory_viz: the allocations with their stacks, and the segments.
std::string memory_viz(const History& history);

// For speedscope.app: the live memory at the peak, by stack.
std::string speedscope(const History& history);

std::string exchange(const History& history, ExchangeFormat format);

}  // namespace headroom::report

namespace headroom {

template <>
struct EnumNames<report::ExchangeFormat> {
  static constexpr std::array<std::string_view, 3> kNames = {"memory_viz", "speedscope", "perfetto"};
};

}  // namespace headroom
