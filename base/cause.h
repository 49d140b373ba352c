// The causes of failed work on a GPU. Errors, reports and logs of other frameworks use these names; judge.h
// chooses among the causes related to memory. Knows no strategy, graph or log.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace headroom {

enum class Cause : uint8_t {
  kPreallocation,
  kLibraryReserve,
  kOtherProcess,
  kLimit,
  kTooLargeForDevice,
  kFragmentation,
  kRounding,
  kWorkspace,
  kHandleLeak,
  kHostSpill,
  kSizeOverflow,
  kExhausted,
  kIndexOutOfRange,
  kVersionMismatch,
  kPermission,
  kNotMemory,
  // Causes found in snapshots and recordings, which show the allocations of each step.
  kGraphsKept,
  kLossesKept,
  kGrowingBatch,
  kGradientsKept,
  kOptimizerState,
  // Causes found only in logs: other programs fail in these ways, but Headroom does not, or cannot know.
  // Leaks also appear in recordings.
  kHostMemory,
  kSharedMemory,
  kHardware,
  kModelTooLarge,
  kKvCache,
  kCollectiveBuffers,
  kLeak,
  kAmbiguous,
  kNone,
  kUnknown,
};

struct CauseInfo {
  Cause cause;
  std::string_view name;     // "other-process"
  std::string_view meaning;  // "another process holds the memory"
};
// All of them, in the order of the enumeration.
std::span<const CauseInfo> causes();

std::string_view name_of(Cause cause);
std::string_view meaning_of(Cause cause);

}  // namespace headroom
