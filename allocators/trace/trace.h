// What a program asked of its memory strategy, in order: the one form in which traces are kept, whatever file
// they come from. Knows no device and no strategy.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/category.h"

namespace headroom {

struct TraceEvent {
  bool allocates = true;  // else it frees
  int32_t block = 0;      // which block: every allocation has a number of its own, from 0 in order
  int64_t bytes = 0;      // of the block as requested, at both of its events
  int32_t stream = 0;     // position in Trace::streams
  int32_t op = 0;         // position in Trace::names: who asked; 0 where unknown
  int32_t tag = 0;        // position in Trace::names: what for
  int64_t time_ns = 0;    // since some begin; 0 where unknown
};

// What is known of a block beside its events; all of it may be unknown.
struct TraceBlock {
  uint64_t address = 0;     // where the recorded strategy put it; the block's id where that was no address
  int64_t block_bytes = 0;  // what the strategy took for it; 0 where unknown
  int32_t source = 0;       // position in Trace::names: "net.cpp:31"
  MemoryCategory category = MemoryCategory::kOther;
  bool is_part = false;  // of another block: it took nothing of the strategy
};

// What lies inside of a block while its user makes use of it, as the values of a step do in the arena of a
// packed plan. The strategy was not asked for it.
struct TracePart {
  int32_t block = 0;
  MemoryCategory category = MemoryCategory::kOther;
  int32_t op = 0, tag = 0, source = 0;  // positions in Trace::names
  uint64_t address = 0;
  int64_t bytes = 0;
  int64_t first = 0, end = 0;  // [first, end): when in a pass through the block that is made again and again
};

// What happened beside allocations and frees.
struct DeviceEvent {
  enum class Kind : uint8_t {
    kReserve,      // the strategy got `bytes` from the driver, at `address` if that is not 0
    kUnreserve,    // and gave them back
    kRetry,        // a request found room only after memory had come back
    kOutOfMemory,  // or none at all
    kDevice,       // what the driver says of the device
  };
  Kind kind = Kind::kRetry;
  MemoryCategory category = MemoryCategory::kOther;
  int32_t stream = 0, op = 0, tag = 0, source = 0;
  int64_t position = 0;  // how many of Trace::events were before
  int64_t time_ns = 0;
  uint64_t address = 0;
  int64_t bytes = 0;  // kDevice: in total
  int64_t free_bytes = 0, process_bytes = 0, others_bytes = 0;
};

struct Trace {
  // A request above this is a fault of the trace: no device is larger, and sums stay far from overflow.
  static constexpr int64_t kLargestBlockBytes = int64_t{1} << 60;

  std::string name;    // of the file, with "#device1" behind it where the file holds several devices
  std::string format;  // "PyTorch memory snapshot"
  // Every free is of a live block, so an event can be replayed without a check.
  std::vector<TraceEvent> events;
  int64_t blocks = 0;
  std::vector<TraceBlock> block_facts;  // by block
  std::vector<TracePart> parts;         // in the order of their blocks
  std::vector<DeviceEvent> device_events;
  std::vector<std::pair<std::string, std::string>> settings;  // of the recorded program: "strategy", ...
  bool has_addresses = true;
  bool cut_off = false;  // the file ended within a line, as when a program is killed
  std::vector<std::string> names = {""};
  std::vector<uint64_t> streams = {0};  // handles as the trace has them; the default stream comes first

  int64_t peak_bytes = 0;  // the largest set of bytes live at once: what no strategy can go below
  int64_t peak_event = 0;  // after which of the events they first were
};

}  // namespace headroom
