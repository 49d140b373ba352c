// Why work on a GPU failed: the one list of causes. Errors, reports and logs of other frameworks use its
// names; judge.h decides between those of memory. Knows no strategy, no graph and no log.
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
  // Of snapshots and recordings, which show what a program allocates in each step.
  kGraphsKept,
  kLossesKept,
  kGrowingBatch,
  kGradientsKept,
  kOptimizerState,
  // Of logs only: other programs fail in these ways, Headroom does not, or cannot know. Recordings show
  // leaks, too.
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
