// Why a request found no room, judged from the numbers of its error alone. Knows no strategy and no graph.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/errors.h"

namespace headroom {

enum class MemoryCause : uint8_t {
  kCapacity,        // the device has less than is needed, whoever holds it
  kCap,             // a limit that was set refuses what the device could give
  kLibraryReserve,  // what a pool leaves to libraries: the request would fit without it, or is too little
  kOtherProcess,    // it would fit if others did not hold a large part of the device
  kFragmentation,   // enough is idle or free, but not in one piece
  kRounding,        // the bytes asked for would fit, what the strategy takes for them does not
};

// The first rule that holds, see docs/out-of-memory.md. A request of 0 bytes is a library's.
MemoryCause judge(const MemoryFacts& facts);

std::string_view name_of(MemoryCause cause);  // "library-reserve"
// One clause with the numbers that decide.
std::string reason_for(MemoryCause cause, const MemoryFacts& facts);

// "out of memory: tried to allocate ... (strategy ...; device: ...)": what is known, without the cause.
std::string describe_failure(const MemoryFacts& facts);

}  // namespace headroom
