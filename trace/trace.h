// A program's requests to its memory strategy, in order, from a file of any format. Knows no device and no
// strategy.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/memory_category.h"

namespace headroom {

struct TraceEvent {
  bool allocates = true;  // else it frees
  int32_t block = 0;      // every allocation has a new number, from 0 in order
  int64_t bytes = 0;      // size of the block as requested, at both of its events
  int32_t stream = 0;     // position in Trace::streams
  int32_t op = 0;         // position in Trace::names: who asked; 0: unknown
  int32_t tag = 0;        // position in Trace::names: for what
  int64_t time_ns = 0;    // since some start; 0: unknown
};

// The rule that found the category of a block.
enum class CategoryRule : uint8_t {
  kNone,  // unknown, or as the file says
  kBeforeHistory,
  kSetupKeeps,
  kSetupTemporary,
  kSetupWithoutGradient,
  kFirstOptimizerStep,
  kOptimizerKeeps,
  kOptimizerTemporary,
  kBackwardTemporary,
  kBackwardKeeps,
  kBackwardKeepsOther,
  kOneOp,
  kFreedInBackward,
  kForwardTemporary,
  kBeforeModules,
  kOutlivesStep,
  kLiveAtEnd,
  kOutsidePhases,
  kWorkspaceFunction,
  kHandleKeeps,
  kStackAlone,
  kRefused,
};

inline constexpr std::array<std::string_view, 22> kCategoryRuleTexts = {
    "",
    "live before the history begins",
    "allocated before the first step and kept",
    "allocated and freed before the first step",
    "allocated before the first step outside torch.nn; no gradient has its size",
    "allocated in the first optimizer step and kept",
    "allocated by the optimizer and kept",
    "freed in the optimizer step that allocated it",
    "freed in the backward pass that allocated it",
    "allocated in backward and kept after it",
    "allocated in backward and kept; no weight has its size",
    "freed before anything else was allocated",
    "allocated in forward, freed in backward",
    "allocated and freed in the same forward pass",
    "allocated in a step before any module is called",
    "allocated in forward, outlives its step",
    "allocated in the forward pass of the last step, still live",
    "allocated outside forward, backward and optimizer",
    "allocated by a function for workspaces",
    "live before the history begins, made once in a module's forward and kept: a library's",
    "by its stack alone, as the file has no history",
    "refused: by what asked for it",
};

// More about a block; all of it may be unknown.
struct TraceBlock {
  uint64_t address = 0;     // where the traced strategy put it, or the block's id
  int64_t block_bytes = 0;  // the size of the strategy's block; 0: unknown
  // Positions in Trace::names; 0: unknown.
  int32_t source = 0;  // "net.cpp:31", the user's line
  int32_t module = 0;  // "layer1.0.conv1"
  int32_t stack = 0;   // frames "file:line function", one a line, the innermost first
  MemoryCategory category = MemoryCategory::kOther;
  CategoryRule rule = CategoryRule::kNone;
  bool is_part = false;  // part of another block, so not a request to the strategy
};

// Something inside a block, such as a value in the arena of a packed plan. Not a request to the strategy.
struct TracePart {
  int32_t block = 0;
  MemoryCategory category = MemoryCategory::kOther;
  int32_t op = 0, tag = 0, source = 0;  // positions in Trace::names
  uint64_t address = 0;
  int64_t bytes = 0;
  int64_t first = 0, end = 0;  // [first, end): when, in a pass over the block that repeats
};

// Other events than allocations and frees.
struct DeviceEvent {
  enum class Kind : uint8_t {
    kReserve,      // the strategy got `bytes` from the driver, at `address` unless that is 0
    kUnreserve,    // and gave them back
    kRetry,        // a request found room only after memory had come back
    kOutOfMemory,  // a request found no room
    kDevice,       // memory of the device, as the driver reports it
    kEmptyCache,   // the program released idle memory (torch.cuda.empty_cache); a replay does the same
  };
  Kind kind = Kind::kRetry;
  MemoryCategory category = MemoryCategory::kOther;
  CategoryRule rule = CategoryRule::kNone;
  int32_t stream = 0, op = 0, tag = 0, source = 0, module = 0, stack = 0;
  int64_t position = 0;  // number of Trace::events before it
  int64_t time_ns = 0;
  uint64_t address = 0;
  int64_t bytes = 0;  // kDevice: in total
  int64_t free_bytes = 0, process_bytes = 0, others_bytes = 0;
};

// The activity of a training program within a step.
enum class StepPhase : uint8_t { kSetup, kForward, kBackward, kOptimizer, kOther, kEvaluation };

// In the order of the enumeration; a trace file holds the position.
inline constexpr std::array<std::string_view, 6> kStepPhaseNames = {"setup",     "forward", "backward",
                                                                    "optimizer", "other",   "evaluation"};

// From here on events belong to this step and phase.
struct TraceMark {
  int64_t position = 0;  // number of Trace::events before it
  int32_t step = 0;      // from 1 on; 0: before the first step
  StepPhase phase = StepPhase::kOther;
  int64_t time_ns = 0;
};

struct Trace {
  // Larger requests are refused: no device is larger, and sums cannot overflow.
  static constexpr int64_t kLargestBlockBytes = int64_t{1} << 60;

  std::string name;    // name of the file, followed by "#device1" if the file holds several devices
  std::string format;  // "PyTorch memory snapshot"
  // Every free is of a live block, so replaying needs no check.
  std::vector<TraceEvent> events;
  int64_t live_before = 0;  // so many first events allocate what was live before the file's history
  int64_t blocks = 0;
  std::vector<TraceBlock> block_facts;  // by block
  std::vector<TracePart> parts;         // in the order of their blocks
  std::vector<DeviceEvent> device_events;
  std::vector<TraceMark> marks;  // in order; their steps never fall
  std::vector<std::pair<std::string, std::string>>
      settings;  // settings of the traced program: "strategy", ...
  bool has_addresses = true;
  bool cut_off = false;  // the file ended within a line because the program was killed
  std::vector<std::string> names = {""};
  std::vector<uint64_t> streams = {0};  // handles; the default stream comes first

  // Counts of the file. A replay adds the request that failed there, and unfold() the parts of blocks.
  int64_t recorded_events = 0, recorded_blocks = 0;
  std::vector<int64_t> unfolded_from = {};  // by event of unfold(): that of the file, counted from 1

  int64_t peak_bytes = 0;  // the largest set of bytes live at once: no strategy needs less
  int64_t peak_event = 0;  // the event after which they first were
};

}  // namespace headroom
