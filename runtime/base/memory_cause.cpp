#include "runtime/base/memory_cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "runtime/base/bytes.h"

namespace headroom {
namespace {

constexpr std::array<std::string_view, 6> kCauseNames = {"capacity",      "cap",           "library-reserve",
                                                         "other-process", "fragmentation", "rounding"};

// A library starts in less: cuBLAS's handle, the largest, took 64 to 100 MiB wherever it was measured
// (docs/gpu.md).
constexpr int64_t kRoomForLibrary = 64 * kMiB;

int64_t asked(const MemoryFacts& facts) {
  return facts.asked > 0 ? facts.asked : facts.allocated;
}

// A request may be any number; what does not fit into 64 bits is as much as they hold.
int64_t needed_bytes(const MemoryFacts& facts) {
  int64_t sum = 0;
  return __builtin_add_overflow(asked(facts), facts.requested, &sum) ? std::numeric_limits<int64_t>::max()
                                                                     : sum;
}

// What the strategy may still take from the driver.
int64_t room(const MemoryFacts& facts) {
  return std::min(facts.device_free, facts.limit_room.value_or(facts.device_free));
}

// A desktop holds some part of most devices; a quarter is the share from which `headroom explain` blames it.
bool others_hold_much(const MemoryFacts& facts) {
  return facts.others > 0 && facts.others >= facts.device_total / 4;
}

MemoryCause judge_library(const MemoryFacts& facts) {
  if (facts.reserved - facts.allocated >= kRoomForLibrary) return MemoryCause::kLibraryReserve;
  return others_hold_much(facts) ? MemoryCause::kOtherProcess : MemoryCause::kCapacity;
}

}  // namespace

MemoryCause judge(const MemoryFacts& facts) {
  if (facts.requested == 0) return judge_library(facts);
  if (facts.requested > facts.device_total) return MemoryCause::kCapacity;
  if (facts.requested <= room(facts)) return MemoryCause::kRounding;
  const int64_t needed = needed_bytes(facts);
  const int64_t most = facts.reserved + room(facts);
  if (needed > most) {
    const int64_t on_device = facts.reserved + facts.device_free;
    if (facts.limit && needed <= on_device) {
      return facts.limit_is_reserve ? MemoryCause::kLibraryReserve : MemoryCause::kCap;
    }
    return needed <= on_device + facts.others && others_hold_much(facts) ? MemoryCause::kOtherProcess
                                                                         : MemoryCause::kCapacity;
  }
  return facts.allocated + facts.requested > most ? MemoryCause::kRounding : MemoryCause::kFragmentation;
}

std::string_view name_of(MemoryCause cause) {
  return kCauseNames[static_cast<size_t>(cause)];
}

std::string reason_for(MemoryCause cause, const MemoryFacts& facts) {
  const auto size = [](int64_t bytes) { return format_bytes(bytes); };
  const int64_t needed = needed_bytes(facts);
  const int64_t on_device = facts.reserved + facts.device_free;
  const int64_t idle = facts.reserved - facts.allocated;
  switch (cause) {
    case MemoryCause::kCapacity:
      if (facts.requested == 0) return fmt::format("a library finds only {} free", size(facts.device_free));
      if (facts.requested > facts.device_total) return "the request alone is larger than the device";
      return fmt::format("{} are needed and {} can be had on the device, {} too little", size(needed),
                         size(on_device), size(needed - on_device));
    case MemoryCause::kCap:
      return fmt::format("{} are needed, the limit is {}, and the device has {} free", size(needed),
                         size(*facts.limit), size(facts.device_free));
    case MemoryCause::kLibraryReserve:
      if (facts.requested == 0) {
        return fmt::format("the pool holds {} and uses {}, which leaves {} for a library to start in",
                           size(facts.reserved), size(facts.allocated), size(facts.device_free));
      }
      return fmt::format("{} are needed, the pool stops at {} to leave libraries room, and {} are free",
                         size(needed), size(*facts.limit), size(facts.device_free));
    case MemoryCause::kOtherProcess:
      if (facts.requested == 0) {
        return fmt::format("others hold {}, and a library finds only {} free", size(facts.others),
                           size(facts.device_free));
      }
      return fmt::format("others hold {}; without them the {} that are needed would fit", size(facts.others),
                         size(needed));
    case MemoryCause::kFragmentation:
      return fmt::format("{} are idle and {} can be reserved, but no piece is larger than {}", size(idle),
                         size(room(facts)), size(std::max(facts.largest_free_block, room(facts))));
    case MemoryCause::kRounding:
      if (facts.requested <= room(facts)) {
        return fmt::format("{} can be reserved, but the strategy takes more than the request at a time",
                           size(room(facts)));
      }
      return fmt::format("{} are taken for the {} in use; exact sizes would fit", size(facts.allocated),
                         size(asked(facts)));
  }
  return {};
}

std::string describe_failure(const MemoryFacts& facts) {
  return fmt::format("out of memory: tried to allocate {} ({})", describe_request(facts),
                     describe_holders(facts));
}

}  // namespace headroom
