#include "base/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"

namespace headroom {
namespace {

using enum Cause;
using enum Confidence;
using Request = MemoryNumbers::Request;
using Result = std::optional<Judgment>;

// The largest GPU has 288 GB: no program requests more than this on purpose.
constexpr int64_t kAbsurdBytes = 16 * 1024 * kGiB;
constexpr int64_t kAbsurdFactor = 100;  // times the device
// cuBLAS and cuDNN together took 76 to 130 MiB to start wherever we measured them (docs/gpu.md), the first
// context up to 518 MiB. With this much free, a lack of memory is not why one does not start.
constexpr int64_t kPlentyForLibraries = 2 * kGiB;
// Enough free memory on a small card: a quarter of it, and at least this.
constexpr int64_t kPlentyOnSmallCard = kGiB;
// A pool leaves up to 1.5 GiB to libraries (TensorFlow's figures, docs/strategies.md), so this much may be
// free when a pool is full.
constexpr int64_t kLargestReserve = 1536 * kMiB;
// PyTorch takes segments of 20 MiB for small tensors: the rests of a few are idle in every pool that is full.
constexpr int64_t kFewSegments = 64 * kMiB;
// cuBLAS's handle, the largest, took 64 to 100 MiB.
constexpr int64_t kRoomForLibrary = 64 * kMiB;

std::string size(int64_t bytes) {
  return format_bytes(bytes);
}

std::optional<int64_t> live(const MemoryNumbers& n) {
  return n.in_use ? n.in_use : n.allocated;
}

int64_t needed(const MemoryNumbers& n) {
  return sum_of_bytes(live(n).value_or(0), *n.requested);
}

// Returns the bytes that the pool could give if nothing were rounded or fragmented.
int64_t unused(const MemoryNumbers& n) {
  return n.in_use && n.reserved ? *n.reserved - *n.in_use : n.idle.value_or(0);
}

std::optional<int64_t> limit_room(const MemoryNumbers& n) {
  if (n.limit_room || !n.limit || n.limit_is_on_process) return n.limit_room;
  return std::max<int64_t>(0, *n.limit - n.reserved.value_or(n.allocated.value_or(0)));
}

// Returns the bytes that the pool may still reserve; needs n.free.
int64_t room(const MemoryNumbers& n) {
  return *room_of(n);
}

// Returns "the limit is 6.99 GiB", or the bounds of a limit that only a refusal shows.
std::string limit_text(const MemoryNumbers& n) {
  const std::string least = size(*n.limit), below = size(n.limit_below.value_or(*n.limit));
  return least == below ? "the limit is " + least
                        : fmt::format("the limit is at least {} and below {}", least, below);
}

// "158.55 MiB are needed, the limit is 100.00 MiB". A limit on the process also counts context and libraries,
// so it is not compared with the bytes of the pool.
std::string shortage_text(const MemoryNumbers& n) {
  const std::optional<int64_t> left = limit_room(n);
  if (!n.limit_is_on_process || !left)
    return fmt::format("{} are needed, {}", size(needed(n)), limit_text(n));
  return fmt::format("{} are requested, {} are left of the limit of {} on the process", size(*n.requested),
                     size(*left), size(*n.limit));
}

Result size_overflow(const MemoryNumbers& n) {
  if (!n.requested) return std::nullopt;
  const bool absurd = *n.requested >= kAbsurdBytes || (n.total && *n.requested / kAbsurdFactor > *n.total);
  if (!absurd) return std::nullopt;
  std::string times;
  if (n.total) {
    times = fmt::format(", {:.0f} times the device's {}",
                        static_cast<double>(*n.requested) / static_cast<double>(*n.total), size(*n.total));
  }
  return Judgment{
      kSizeOverflow, kHigh,
      fmt::format(
          "{} were requested{}: a size was computed wrongly (a 32-bit product, a length read from bad data)",
          size(*n.requested), times)};
}

// Only a driver that spills to host memory (Windows does) lets a process hold more than the device has.
Result host_spill(const MemoryNumbers& n) {
  if (!n.total || !n.allocated || *n.allocated <= *n.total + *n.total / 50) return std::nullopt;
  std::string reason = fmt::format(
      "{} are allocated on a device of {}: the driver moved {} to host memory, which is many times slower",
      size(*n.allocated), size(*n.total), size(*n.allocated - *n.total));
  if (n.requested && *n.requested > *n.total) {
    reason += fmt::format("; the request of {} alone also exceeds the device", size(*n.requested));
  }
  return Judgment{kHostSpill, kHigh, std::move(reason)};
}

Result too_large(const MemoryNumbers& n) {
  if (!n.requested || !n.total || *n.requested <= *n.total) return std::nullopt;
  return Judgment{kTooLargeForDevice, kHigh,
                  fmt::format("one request of {} cannot fit a device of {}, even an empty one",
                              size(*n.requested), size(*n.total))};
}

Result no_context(const MemoryNumbers& n) {
  if (n.request != Request::kContext || n.reserved.value_or(0) > 0) return std::nullopt;
  return Judgment{kOtherProcess, n.total ? kHigh : kMedium,
                  fmt::format("the driver had no room for this process's context, its first allocation: "
                              "other processes use the device{}",
                              n.total ? fmt::format(" of {}", size(*n.total)) : "")};
}

Result limit(const MemoryNumbers& n) {
  const bool device_has_room = !n.free || (n.requested && *n.requested <= sum_of_bytes(unused(n), *n.free));
  const std::optional<int64_t> left = limit_room(n);
  // A limit on the whole process: how much it leaves is not known, so the device must have room by itself.
  const bool refused = !n.limit || !n.requested ? false
                       : left                   ? *n.requested > sum_of_bytes(unused(n), *left)
                              : *n.requested > unused(n) && n.free && *n.requested <= *n.free;
  if (refused && device_has_room) {
    const std::string free = n.free ? fmt::format("the device has {} free", size(*n.free))
                                    : "the log does not say what the device has free";
    return n.limit_is_reserve
               ? Judgment{kLibraryReserve, kHigh,
                          fmt::format(
                              "{} are needed, the pool stops at {} to leave room for libraries, and {}",
                              size(needed(n)), size(*n.limit), free)}
               : Judgment{kLimit, kHigh, fmt::format("{}, and {}", shortage_text(n), free)};
  }
  if (!n.limit_refused) return std::nullopt;
  return Judgment{kLimit, kHigh,
                  fmt::format("a limit{} refused the request, not the device",
                              n.limit ? fmt::format(" of {}", size(*n.limit)) : "")};
}

// The pool may not grow as far as the device would let it: a limit that the log does not show.
Result capacity(const MemoryNumbers& n) {
  if (n.request != Request::kTensor || !n.requested || !n.capacity) return std::nullopt;
  const int64_t held = n.allocated.value_or(0);
  if (*n.requested <= *n.capacity - held) return std::nullopt;  // within the limit: something else
  if (n.free && *n.free - kLargestReserve >= *n.requested) {
    return Judgment{kLimit, kMedium,
                    fmt::format("the pool may hold {} and has {} in use; {} were requested, and the device "
                                "has {} free, so a limit refused",
                                size(*n.capacity), size(held), size(*n.requested), size(*n.free))};
  }
  if (n.free_at_start && *n.capacity < (*n.free_at_start - kLargestReserve) / 10 * 9) {
    return Judgment{
        kLimit, kMedium,
        fmt::format("{} were free at the start, and the pool may hold only {}: a limit or a fraction was set",
                    size(*n.free_at_start), size(*n.capacity))};
  }
  if (n.takes_three_quarters && n.total && *n.capacity <= *n.total / 100 * 90) {
    return Judgment{
        kLimit, kMedium,
        fmt::format("the pool may hold {} of the device's {}: {} takes three quarters unless told otherwise",
                    size(*n.capacity), size(*n.total), n.pool_of)};
  }
  return std::nullopt;
}

Result rounding_of_request(const MemoryNumbers& n) {
  if (!n.is_exact || !n.requested || !n.free || (n.limit && !limit_room(n))) return std::nullopt;
  if (*n.requested > room(n)) return std::nullopt;
  return Judgment{kRounding, kHigh,
                  fmt::format("{} can be reserved, but the strategy takes more than the request at a time",
                              size(room(n)))};
}

Result plenty_is_free(const MemoryNumbers& n) {
  if (!n.free) return std::nullopt;
  if (n.requested) {
    if (n.limit) return std::nullopt;  // free memory of the device is out of reach under a limit
    const int64_t margin = n.capacity ? kPlentyForLibraries : std::max(kRoomForLibrary, *n.requested / 8);
    if (*n.free - margin < *n.requested) return std::nullopt;
    // What is left of a device that is nearly full may be in use again before the message is made.
    if (n.total && *n.free < *n.total / 32) return std::nullopt;
    return Judgment{
        kNotMemory, kMedium,
        fmt::format("{} were requested and {} are free on the device: it was not full. A setting that the "
                    "log does not show (a fraction, a share of a partitioned GPU) may have refused, or "
                    "another process that has ended since held the memory",
                    size(*n.requested), size(*n.free))};
  }
  const bool plenty =
      *n.free >= kPlentyForLibraries || (n.total && *n.free >= kPlentyOnSmallCard && *n.free >= *n.total / 4);
  if (!plenty || n.request == Request::kTensor || n.request == Request::kWorkspace) return std::nullopt;
  return Judgment{kNotMemory, kHigh,
                  fmt::format("{} are free{}, and a library needs a few hundred MiB to start: look at "
                              "versions, driver and earlier errors instead",
                              size(*n.free), n.total ? fmt::format(" of {}", size(*n.total)) : "")};
}

// The pool reserved the memory that a library needs to start.
Result preallocation(const MemoryNumbers& n) {
  if (n.request != Request::kLibrary && n.request != Request::kContext) return std::nullopt;
  if (n.is_exact && n.idle) {
    if (*n.idle < kRoomForLibrary) return std::nullopt;
    return Judgment{
        kPreallocation, kHigh,
        fmt::format("the pool holds {} and uses {}, which leaves {} for a library to start in",
                    size(n.reserved.value_or(0)), size(n.allocated.value_or(0)), size(n.free.value_or(0)))};
  }
  if (n.pool_of.empty() || n.pool_is_foreign || (n.requested && n.idle)) return std::nullopt;
  if (n.pool_at_start && n.free_at_start && *n.free_at_start - *n.pool_at_start < kLargestReserve) {
    return Judgment{
        kPreallocation, kHigh,
        fmt::format("{} took {} of the {} that were free, which left {} for context, libraries and kernels",
                    n.pool_of, size(*n.pool_at_start), size(*n.free_at_start),
                    size(*n.free_at_start - *n.pool_at_start))};
  }
  if (n.free && n.total) {
    return Judgment{kPreallocation, kMedium,
                    fmt::format("{} of {} are free after {} took its pool: little for a library to start in",
                                size(*n.free), size(*n.total), n.pool_of)};
  }
  return Judgment{kPreallocation, kMedium,
                  fmt::format("a library did not start, {} takes nearly all memory before its libraries "
                              "start, and the log shows no setting that stops it",
                              n.pool_of)};
}

Result second_framework(const MemoryNumbers& n) {
  if (!n.pool_is_foreign || !n.pool_at_start || !n.total || *n.pool_at_start < *n.total / 2)
    return std::nullopt;
  return Judgment{kPreallocation, kHigh,
                  fmt::format("{} in the same log took a pool of {} of the device's {}; others get the rest",
                              n.pool_of, size(*n.pool_at_start), size(*n.total))};
}

// A desktop uses some part of most devices; a quarter is significant.
Result other_process(const MemoryNumbers& n) {
  if (n.others.value_or(0) <= 0 || !n.total || *n.others < *n.total / 4) return std::nullopt;
  if (n.requested && n.free && *n.requested > sum_of_bytes(unused(n), *n.free + *n.others))
    return std::nullopt;
  const bool most = *n.others >= *n.total / 2 || (n.reserved && *n.others > *n.reserved);
  return Judgment{kOtherProcess, n.is_exact || most ? kHigh : kMedium,
                  fmt::format("other processes{} hold {}{} of the device's {}; this one's pool holds {}",
                              n.named_others, n.others_are_estimated ? "about " : "", size(*n.others),
                              size(*n.total), n.reserved ? size(*n.reserved) : "an unknown amount")};
}

// Handles, workspaces of libraries, a second framework: all that a process holds outside its pool.
Result handle_leak(const MemoryNumbers& n) {
  if (!n.process || !n.reserved) return std::nullopt;
  const int64_t outside = *n.process - *n.reserved;
  if (outside < kPlentyForLibraries || outside < *n.process / 2) return std::nullopt;
  return Judgment{kHandleLeak, kMedium,
                  fmt::format("this process holds {}, its pool only {}: {} are outside, where one context "
                              "and its libraries take less than {}",
                              size(*n.process), size(*n.reserved), size(outside), size(kGiB))};
}

Result workspace(const MemoryNumbers& n) {
  if (n.request != Request::kWorkspace) return std::nullopt;
  return Judgment{
      kWorkspace, n.requested ? kHigh : kMedium,
      n.requested ? fmt::format("the request of {} is an op's workspace, not a tensor", size(*n.requested))
                  : "a library found no algorithm whose workspace fits into what is left"};
}

// Exact numbers decide if the bytes would fit without rounding, and if the blocks would fit.
Result exact_pieces(const MemoryNumbers& n) {
  if (!n.is_exact || !n.requested || !n.reserved || !n.allocated || !n.free) return std::nullopt;
  const int64_t most = *n.reserved + room(n);
  if (needed(n) > most) return std::nullopt;
  if (sum_of_bytes(*n.allocated, *n.requested) > most) {
    return Judgment{kRounding, kHigh,
                    fmt::format("{} are taken for the {} in use; this request would fit with exact sizes",
                                size(*n.allocated), size(*live(n)))};
  }
  const int64_t piece = std::max(n.largest.value_or(0), room(n));
  std::string reason = fmt::format("{} are idle and {} can be reserved, but no piece is larger than {}",
                                   size(*n.reserved - *n.allocated), size(room(n)), size(piece));
  if (piece < *n.requested && size(piece) == size(*n.requested))
    reason += fmt::format(", {} less than requested", size(*n.requested - piece));
  return Judgment{kFragmentation, kHigh, std::move(reason)};
}

Result fragmentation(const MemoryNumbers& n) {
  if (n.is_exact || !n.requested || !n.allocated || n.request == Request::kWorkspace) return std::nullopt;
  if (n.largest && *n.largest >= *n.requested) return std::nullopt;
  const std::optional<int64_t> idle =
      n.idle || !n.capacity || !n.takes_capacity ? n.idle : std::optional(*n.capacity - *n.allocated);
  if (idle && *idle < (*n.allocated + *idle) / 100) return std::nullopt;  // as good as full
  if (idle && *idle >= *n.requested) {
    const int64_t pool = *n.allocated + *idle;
    const bool near_full = *idle < pool / 20;
    if (near_full && *idle < kFewSegments) return std::nullopt;
    return Judgment{
        kFragmentation, near_full || !(n.reserved || n.largest) ? kMedium : kHigh,
        fmt::format("the pool has {} idle, more than the {} requested, but not in one piece{}{}", size(*idle),
                    size(*n.requested),
                    n.largest ? fmt::format(": its largest free block is {}", size(*n.largest)) : "",
                    near_full ? fmt::format("; it is also nearly full, {} of {} in use", size(*n.allocated),
                                            size(pool))
                              : "")};
  }
  if (!n.free || !n.idle || *n.requested > sum_of_bytes(room(n), *n.idle)) return std::nullopt;
  if (*n.idle < (*n.allocated + *n.idle) / 20) return std::nullopt;  // nearly all of the pool is in use
  return Judgment{kFragmentation, kMedium,
                  fmt::format("{} {} and {} idle in the pool are enough for the {} requested only together",
                              size(room(n)), room(n) < *n.free ? "left of the limit" : "free on the device",
                              size(*n.idle), size(*n.requested))};
}

// What is idle would be enough, but is no large part of the pool; the device has room, which the limit
// denies.
Result limit_of_growth(const MemoryNumbers& n) {
  const std::optional<int64_t> left = n.limit ? limit_room(n) : std::nullopt;
  if (!left || !n.requested || !n.free || *n.requested <= *left || *n.requested > *n.free)
    return std::nullopt;
  return Judgment{
      n.limit_is_reserve ? kLibraryReserve : kLimit, kHigh,
      fmt::format(
          "{} are left of the limit of {}, the {} that are idle are in pieces, and the device has {} free",
          size(*left), size(*n.limit), size(unused(n)), size(*n.free))};
}

Result exhausted(const MemoryNumbers& n) {
  const bool is_library = n.request == Request::kLibrary || n.request == Request::kContext;
  if (is_library && !n.free && !n.allocated) return std::nullopt;
  if (!n.requested) {
    if (n.free && *n.free >= kPlentyForLibraries) return std::nullopt;
    return Judgment{kExhausted,
                    n.is_exact ? kHigh
                    : n.free   ? kMedium
                               : kLow,
                    n.free ? fmt::format("a library finds only {} free", size(*n.free))
                           : "the device had no room; the log does not say for what, nor who holds it"};
  }
  if (n.free && n.idle && *n.requested > sum_of_bytes(unused(n), room(n))) {
    const int64_t more = *n.requested - unused(n) - room(n);
    return Judgment{kExhausted, kHigh,
                    n.reserved && live(n)
                        ? fmt::format("{} are needed and {} are available on the device, {} too little",
                                      size(needed(n)), size(*n.reserved + room(n)), size(more))
                        : fmt::format("{} were requested; {} free and {} idle in the pool are {} too little",
                                      size(*n.requested), size(room(n)), size(*n.idle), size(more))};
  }
  if (n.free && n.idle && n.total && n.allocated) {
    return Judgment{
        kExhausted, kHigh,
        fmt::format("{} are allocated on a device of {}; {} were requested, and the {} that are free or idle "
                    "are in pieces",
                    size(*n.allocated), size(*n.total), size(*n.requested), size(room(n) + *n.idle))};
  }
  if (n.capacity && *n.requested > *n.capacity) {
    return Judgment{kTooLargeForDevice, kHigh,
                    fmt::format("one request of {} cannot fit a pool that may hold {}, even an empty one",
                                size(*n.requested), size(*n.capacity))};
  }
  if (n.capacity && n.allocated) {
    return Judgment{kExhausted, kHigh,
                    fmt::format("{} of the pool's {} are in use and {} were requested", size(*n.allocated),
                                size(*n.capacity), size(*n.requested))};
  }
  if (n.free && n.total && n.process && *n.process >= *n.total / 2)
    return Judgment{
        kExhausted, kHigh,
        fmt::format("{} were requested and {} are free, and this process holds {} of the device's {}",
                    size(*n.requested), size(*n.free), size(*n.process), size(*n.total))};
  if (n.free)
    return Judgment{kExhausted, kMedium,
                    fmt::format("{} were requested and {} are free", size(*n.requested), size(*n.free))};
  if (n.allocated) {
    const std::string unknown = n.total ? fmt::format("how much of the device's {} is free", size(*n.total))
                                        : std::string("how large the device is");
    return Judgment{
        kExhausted, kMedium,
        fmt::format("{} were requested beside the {} that this process holds; the log does not say {}",
                    size(*n.requested), size(*n.allocated), unknown)};
  }
  return Judgment{
      kExhausted, kLow,
      fmt::format("{} were requested; the log does not say who holds the memory", size(*n.requested))};
}

struct Rule {
  std::string_view question;
  Result (*judge)(const MemoryNumbers& numbers);
};

constexpr Rule kRules[] = {
    {"Is the request impossibly large?", size_overflow},
    {"Is more allocated than the device has?", host_spill},
    {"Is the request larger than the device?", too_large},
    {"Was there too little room for the context?", no_context},
    {"Did a limit refuse?", limit},
    {"Did a limit that the log does not show refuse?", capacity},
    {"Could the request alone be reserved?", rounding_of_request},
    {"Is plenty free?", plenty_is_free},
    {"Did a pool take what a library needs to start?", preallocation},
    {"Did another framework's pool take the device?", second_framework},
    {"Would exact sizes, or one piece, fit?", exact_pieces},
    {"Do other processes hold a quarter or more?", other_process},
    {"Does this process hold more outside its pool than in it?", handle_leak},
    {"Was it for a workspace?", workspace},
    {"Is enough memory idle, but in pieces?", fragmentation},
    {"Did a limit keep the pool from growing?", limit_of_growth},
    {"Is there simply too little memory?", exhausted},
};

MemoryNumbers numbers_of(const MemoryFacts& facts) {
  MemoryNumbers n;
  n.request = facts.requested == 0          ? Request::kLibrary
              : facts.tensor == "workspace" ? Request::kWorkspace
                                            : Request::kTensor;
  n.is_exact = true;
  if (facts.requested > 0) n.requested = facts.requested;
  if (facts.device_total > 0) n.total = facts.device_total;
  n.free = facts.device_free;
  n.allocated = facts.allocated;
  n.in_use = facts.asked > 0 ? facts.asked : facts.allocated;
  n.reserved = facts.reserved;
  n.idle = facts.reserved - facts.allocated;
  n.largest = facts.largest_free_block;
  n.others = facts.others;
  n.limit = facts.limit;
  n.limit_room = facts.limit_room;
  n.limit_is_reserve = facts.limit_is_reserve;
  n.limit_is_on_process = facts.limit_is_on_process;
  return n;
}

}  // namespace

std::optional<int64_t> room_of(const MemoryNumbers& numbers) {
  if (!numbers.free) return std::nullopt;
  return std::min(*numbers.free, limit_room(numbers).value_or(*numbers.free));
}

std::optional<Judgment> judge(const MemoryNumbers& numbers) {
  if (numbers.request == Request::kNone) return std::nullopt;
  for (const Rule& rule : kRules) {
    if (Result result = rule.judge(numbers)) return result;
  }
  return std::nullopt;
}

Judgment judge(const MemoryFacts& facts) {
  return judge(numbers_of(facts)).value_or(Judgment{kUnknown, kLow, "the numbers do not say why"});
}

}  // namespace headroom
