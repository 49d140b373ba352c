// The one judge of why memory ran out: from the numbers of a failed request it names the cause, with a
// reason. Errors, reports and logs of other frameworks all ask it. Knows no strategy, no graph and no log.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/cause.h"
#include "base/enum_names.h"
#include "base/errors.h"

namespace headroom {

enum class Confidence : uint8_t { kHigh, kMedium, kLow };
constexpr auto value_names(Confidence) {
  return std::to_array<std::string_view>({"high", "medium", "low"});
}

struct Judgment {
  Cause cause = Cause::kUnknown;
  Confidence confidence = Confidence::kLow;
  std::string reason;  // a clause with the numbers that decide: no capital, no full stop
};

// The numbers of a failed request, in bytes. Unknown numbers are absent.
struct MemoryNumbers {
  enum class Request : uint8_t { kNone, kTensor, kWorkspace, kLibrary, kContext };

  Request request = Request::kNone;  // kNone: the failure may not be about memory
  bool is_exact = false;             // from one moment and exact to the byte; otherwise rounded, from text
  std::optional<int64_t> requested;
  std::optional<int64_t> total, free;  // memory of the device
  std::optional<int64_t> allocated;    // live blocks, rounded as the pool rounds
  std::optional<int64_t> in_use;       // in use, without rounding
  std::optional<int64_t> reserved;     // held by the pool, live or idle
  std::optional<int64_t> idle;         // reserved and not allocated
  std::optional<int64_t> largest;      // free block inside the pool
  std::optional<int64_t> process;      // all that this process holds
  std::optional<int64_t> others;       // all that other processes hold
  bool others_are_estimated = false;
  std::string named_others;  // " (pid 17, 23)", where the log names them

  std::optional<int64_t> limit;        // on this pool
  std::optional<int64_t> limit_below;  // the limit is not known: it is at least `limit`, and below this
  std::optional<int64_t> limit_room;   // bytes that the limit still lets it reserve
  bool limit_is_reserve = false;       // derived: it keeps memory free for libraries
  bool limit_is_on_process = false;    // also counts context and libraries
  bool limit_refused = false;          // the message itself says that a limit refused

  std::optional<int64_t> capacity;  // maximum size of the pool: a limit, or the free memory at its start
  bool takes_capacity = false;      // all of that counts as the pool's
  std::optional<int64_t> free_at_start, pool_at_start;
  std::string_view pool_of;           // "TensorFlow": whose pool takes all memory unless a setting stops it
  bool pool_is_foreign = false;       // and that is another framework than the one that failed
  bool takes_three_quarters = false;  // uses three quarters of the device by default
};

// Returns the bytes that the pool may still reserve: the free memory of the device, up to the limit. Returns
// nothing if the free memory is not known.
std::optional<int64_t> room_of(const MemoryNumbers& numbers);
// The first rule that holds, see docs/explain.md; nothing where numbers decide nothing.
std::optional<Judgment> judge(const MemoryNumbers& numbers);
// Judges the numbers of an error, which always determine a cause. A request of 0 bytes comes from a library.
Judgment judge(const MemoryFacts& facts);

}  // namespace headroom
