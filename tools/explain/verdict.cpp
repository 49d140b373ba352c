#include "tools/explain/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/bytes.h"
#include "tools/explain/rules.h"

namespace headroom::explain {
namespace {

using enum Verdict;
using enum Confidence;

// What a library takes at its start: cuBLAS and cuDNN together took 76 to 130 MiB wherever this project
// measured them (docs/gpu.md), the first context up to 518 MiB. With so much free memory is not why one does
// not start.
constexpr int64_t kPlentyForLibraries = 2 * kGiB;
// The same on a small card: a quarter of it and no less than this.
constexpr int64_t kPlentyOnSmallCard = kGiB;
// A pool leaves up to 1.5 GiB to libraries (TensorFlow's figures, docs/strategies.md): so much may be free
// when a pool is full.
constexpr int64_t kLargestReserve = 1536 * kMiB;
// An idle part of a pool that a library could start in.
constexpr int64_t kRoomForLibrary = 64 * kMiB;

bool needs_memory(const Case& facts) {
  return facts.is(Kind::kAllocation) || facts.is(Kind::kCap) || facts.is(Kind::kWorkspace) ||
         facts.is(Kind::kHandle) || facts.is(Kind::kLaunch) || facts.is(Kind::kContext);
}

bool starts_library(const Case& facts) {
  return facts.is(Kind::kHandle) || facts.is(Kind::kLaunch) || facts.is(Kind::kContext);
}

bool has_pool_of_all(const Case& facts) {
  return facts.framework == Framework::kTensorflow || facts.framework == Framework::kJax;
}

bool growth_is_on(const Case& facts) {
  return facts.has_setting("allow_growth") || facts.has_setting("cuda_malloc_async") ||
         facts.has_setting("no_preallocation");
}

// Only a driver that spills to host memory (Windows does) lets a process hold more than the device has.
Result host_spill(const Case& facts) {
  if (!facts.total || !facts.allocated || *facts.allocated <= *facts.total + *facts.total / 50)
    return std::nullopt;
  std::string reason = fmt::format(
      "{} are allocated on a device of {}: the driver has moved {} to the host's memory, "
      "which is many times slower.",
      size(*facts.allocated), size(*facts.total), size(*facts.allocated - *facts.total));
  if (facts.requested && *facts.requested > *facts.total) {
    reason += fmt::format(" The request of {} alone is larger than the device, too.", size(*facts.requested));
  }
  return make(kHostSpill, kHigh, reason);
}

Result too_large(const Case& facts) {
  if (!facts.requested || !facts.total || *facts.requested <= *facts.total) return std::nullopt;
  return make(kTooLargeForDevice, kHigh,
              fmt::format("One request of {} can never fit a device of {}, however empty.",
                          size(*facts.requested), size(*facts.total)));
}

Result context(const Case& facts) {
  if (!facts.is(Kind::kContext)) return std::nullopt;
  if (facts.reserved && *facts.reserved > 0) return std::nullopt;  // this process has a pool already
  return make(
      kOtherProcess, facts.total ? kHigh : kMedium,
      fmt::format(
          "The driver found no room for this process's context, the first thing that a process takes: "
          "others hold the device{}.",
          facts.total ? fmt::format(" of {}", size(*facts.total)) : ""));
}

// Headroom says whether its limit was set; an idle block that would do for the request is in pieces.
Result own_cap(const Case& facts) {
  if (!facts.limit || !facts.requested || !facts.free || *facts.free < *facts.requested) return std::nullopt;
  if (facts.idle && *facts.idle >= *facts.requested) return std::nullopt;
  return make(kCap, kHigh,
              fmt::format("The limit that was set is {}; {} are allocated and {} were requested, while the "
                          "device has {} free.",
                          size(*facts.limit), size(facts.allocated.value_or(0)), size(*facts.requested),
                          size(*facts.free)));
}

Result cap(const Case& facts) {
  if (facts.framework == Framework::kHeadroom && !facts.is(Kind::kCap)) return own_cap(facts);
  if (facts.limit && facts.requested && !facts.is(Kind::kCap)) {
    const int64_t held = facts.reserved.value_or(facts.allocated.value_or(0));
    if (*facts.requested > *facts.limit - held && (!facts.free || *facts.free >= *facts.requested)) {
      return make(
          kCap, kHigh,
          fmt::format("{} are held and {} were requested, more than the {} that a setting allows; the device "
                      "has {} free.",
                      size(held), size(*facts.requested), size(*facts.limit),
                      facts.free ? size(*facts.free) : "an unknown amount"));
    }
  }
  if (facts.is(Kind::kCap)) {
    return make(kCap, kHigh,
                facts.limit ? fmt::format("A limit of {} that was set stopped the request, not the device.",
                                          size(*facts.limit))
                            : "A limit on the pool that was set stopped the request, not the device.");
  }
  if (!facts.is(Kind::kAllocation) || !facts.requested || !facts.capacity) return std::nullopt;
  const int64_t held = facts.allocated.value_or(0);
  if (*facts.requested <= *facts.capacity - held) return std::nullopt;  // within the limit: something else
  if (facts.free && *facts.free - kLargestReserve >= *facts.requested) {
    return make(
        kCap, kMedium,
        fmt::format(
            "The pool may hold {}, has {} in use and {} were requested, while the device has {} free: "
            "the limit stopped it.",
            size(*facts.capacity), size(held), size(*facts.requested), size(*facts.free)));
  }
  const std::optional<Figure>& start_free = facts.figures[Field::kStartFree];
  if (start_free && *facts.capacity < (start_free->bytes - kLargestReserve) / 10 * 9) {
    return make(
        kCap, kMedium,
        fmt::format("{} were free at the start, and the pool may hold only {}: a limit or fraction was set.",
                    size(start_free->bytes), size(*facts.capacity)));
  }
  if (facts.framework == Framework::kJax && facts.total && *facts.capacity <= *facts.total / 100 * 90) {
    return make(
        kCap, kMedium,
        fmt::format(
            "The pool may hold {} of the device's {}: JAX takes three quarters unless told otherwise.",
            size(*facts.capacity), size(*facts.total)));
  }
  return std::nullopt;
}

Result plenty_is_free(const Case& facts) {
  if (!needs_memory(facts) || !facts.free) return std::nullopt;
  if (facts.requested && facts.limit) return std::nullopt;  // room on the device is none under a limit
  if (facts.requested) {
    const int64_t margin =
        facts.capacity ? kPlentyForLibraries : std::max(kRoomForLibrary, *facts.requested / 8);
    if (*facts.free - margin < *facts.requested) return std::nullopt;
    return make(
        kNotMemory, kMedium,
        fmt::format(
            "{} were requested and {} are free on the device: it was not full. A setting that the log "
            "does not show (a fraction, a share of a partitioned GPU) or another process that has ended "
            "since may have refused.",
            size(*facts.requested), size(*facts.free)));
  }
  const bool plenty = *facts.free >= kPlentyForLibraries ||
                      (facts.total && *facts.free >= kPlentyOnSmallCard && *facts.free >= *facts.total / 4);
  if (!plenty || !starts_library(facts)) return std::nullopt;
  return make(
      kNotMemory, kHigh,
      fmt::format(
          "{} are free{}, and a library needs a few hundred MiB to start: look at versions, driver and "
          "earlier errors instead.",
          size(*facts.free), facts.total ? fmt::format(" of {}", size(*facts.total)) : ""));
}

// The pool took what the library needs, and holds part of it idle.
Result preallocation(const Case& facts) {
  if (!starts_library(facts)) return std::nullopt;
  if (facts.framework == Framework::kHeadroom && facts.idle) {
    if (*facts.idle < kRoomForLibrary) return std::nullopt;
    return make(
        kPreallocation, kHigh,
        fmt::format(
            "The pool of strategy {} holds {} and uses {}; {} are left on the device, too little for the "
            "library to start.",
            facts.strategy, size(*facts.reserved), size(*facts.allocated),
            facts.free ? size(*facts.free) : "few bytes"));
  }
  if (!has_pool_of_all(facts) || growth_is_on(facts)) return std::nullopt;
  if (facts.lender != nullptr && facts.requested && facts.idle) return std::nullopt;
  const std::string_view name = name_of(facts.framework);
  const std::optional<Figure>& pool = facts.figures[Field::kPool];
  const std::optional<Figure>& start_free = facts.figures[Field::kStartFree];
  if (pool && start_free && start_free->bytes - pool->bytes < kLargestReserve) {
    return make(
        kPreallocation, kHigh,
        fmt::format(
            "{} took {} of the {} that were free; {} were left for context, libraries and kernels, and a "
            "library did not start.",
            name, size(pool->bytes), size(start_free->bytes), size(start_free->bytes - pool->bytes)));
  }
  if (facts.free && facts.total) {
    return make(kPreallocation, kMedium,
                fmt::format("{} of {} are free after {} took its pool: little for a library to start in.",
                            size(*facts.free), size(*facts.total), name));
  }
  if (first_of(*facts.log, Kind::kBrokenVersion) != nullptr) {
    return make(
        kPreallocation, kLow,
        fmt::format(
            "{} takes nearly all memory before its libraries start, the usual cause; the log also doubts the "
            "version of the driver or of a library, which may be another.",
            name));
  }
  return make(
      kPreallocation, kMedium,
      fmt::format(
          "A library did not start, {} takes nearly all memory before its libraries start, and the log "
          "shows no setting that stops it{}.",
          name, facts.log->cublas_hint ? "; its own hint says the same" : ""));
}

Result second_framework(const Case& facts) {
  const std::optional<Figure>& pool = facts.figures[Field::kPool];
  if (facts.framework != Framework::kTorch || !pool || !facts.total || !needs_memory(facts) ||
      growth_is_on(facts)) {
    return std::nullopt;
  }
  if (pool->bytes < *facts.total / 2) return std::nullopt;
  return make(
      kPreallocation, kHigh,
      fmt::format("TensorFlow in the same log took a pool of {} of the {}; PyTorch gets what it leaves.",
                  size(pool->bytes), size(*facts.total)));
}

Result other_process(const Case& facts) {
  if (facts.is(Kind::kPoolShrunk)) {
    return make(kOtherProcess, kLow,
                "The device gave TensorFlow's pool less than was reported free, so another process took "
                "memory at that "
                "time; TensorFlow goes on with less.");
  }
  if (!needs_memory(facts) || !facts.others || !facts.total || *facts.others < *facts.total / 4)
    return std::nullopt;
  const bool most = *facts.others >= *facts.total / 2 || (facts.reserved && *facts.others > *facts.reserved);
  std::string who;
  for (const Holder& holder : facts.holders)
    who += fmt::format("{}{}", who.empty() ? " (pid " : ", ", holder.pid);
  if (!who.empty()) who += ")";
  return make(kOtherProcess, most ? kHigh : kMedium,
              fmt::format("Other processes{} hold {}{} of the device's {}; this one's pool holds {}.", who,
                          facts.others_named ? "" : "about ", size(*facts.others), size(*facts.total),
                          facts.reserved ? size(*facts.reserved) : "an unknown amount"));
}

// Handles, workspaces of libraries, a second framework: all that a process holds beside its pool.
Result handle_leak(const Case& facts) {
  if (!needs_memory(facts) || !facts.own_outside_pool || !facts.process) return std::nullopt;
  if (*facts.own_outside_pool < kPlentyForLibraries || *facts.own_outside_pool < *facts.process / 2)
    return std::nullopt;
  return make(
      kHandleLeak, kMedium,
      fmt::format(
          "This process holds {}, of which its pool has {}: {} are held beside it, where one context and "
          "its libraries take less than {}.",
          size(*facts.process), size(*facts.reserved), size(*facts.own_outside_pool), size(kGiB)));
}

Result workspace(const Case& facts) {
  if (!facts.is(Kind::kWorkspace)) return std::nullopt;
  return make(kWorkspace, facts.requested ? kHigh : kMedium,
              facts.requested ? fmt::format("What found no room is an op's workspace of {}, not a tensor.",
                                            size(*facts.requested))
                              : "A library found no algorithm whose workspace fits what is left.");
}

Result fragmentation(const Case& facts) {
  if (!facts.requested || !facts.allocated) return std::nullopt;
  if (!facts.is(Kind::kAllocation) && facts.lender == nullptr) return std::nullopt;
  if (facts.largest && *facts.largest >= *facts.requested) return std::nullopt;
  const std::optional<int64_t> idle = facts.idle ? facts.idle
                                      : facts.capacity && !growth_is_on(facts)
                                          ? std::optional(*facts.capacity - *facts.allocated)
                                          : std::nullopt;
  if (idle && *idle < (*facts.allocated + *idle) / 100) return std::nullopt;  // as good as full
  if (idle && *idle >= *facts.requested) {
    const int64_t pool = *facts.allocated + *idle;
    const bool near_full = *idle < pool / 20;
    return make(
        kFragmentation, near_full || !(facts.reserved || facts.largest) ? kMedium : kHigh,
        fmt::format("The pool holds {} idle, more than the {} requested{}, but not in one piece{}.",
                    size(*idle), size(*facts.requested),
                    facts.largest ? fmt::format(", its largest free block {}", size(*facts.largest)) : "",
                    near_full ? fmt::format("; it is also nearly full, {} of {} in use",
                                            size(*facts.allocated), size(pool))
                              : ""));
  }
  if (facts.best && *facts.best >= *facts.requested && facts.framework != Framework::kHeadroom) {
    return make(
        kFragmentation, kMedium,
        fmt::format("{} free on the device and {} idle in the pool together are enough for the {} requested, "
                    "neither alone is.",
                    size(*facts.free), size(*facts.idle), size(*facts.requested)));
  }
  return std::nullopt;
}

Result exhausted(const Case& facts) {
  if (!needs_memory(facts)) return std::nullopt;
  if (starts_library(facts) && !facts.free && !facts.allocated) return std::nullopt;
  if (!facts.requested) {
    if (facts.free && *facts.free >= kPlentyForLibraries) return std::nullopt;
    return make(kExhausted, facts.free ? kMedium : kLow,
                facts.free ? fmt::format("{} are free on the device, little for a library to start in.",
                                         size(*facts.free))
                           : "The device had no room; the log does not say for what, nor who holds it.");
  }
  if (facts.best && *facts.requested > *facts.best) {
    return make(
        kExhausted, kHigh,
        fmt::format(
            "{} were requested; {} free and {} idle in the pool are {} short even if nothing were in pieces.",
            size(*facts.requested), size(*facts.free), size(*facts.idle),
            size(*facts.requested - *facts.best)));
  }
  if (facts.framework == Framework::kHeadroom && facts.capacity && facts.free &&
      *facts.free >= *facts.requested) {
    return make(kExhausted, kHigh,
                fmt::format("The pool stops at {} to leave libraries room, has {} allocated, and {} were "
                            "requested; the {} that are free on the device are for libraries.",
                            size(*facts.capacity), size(facts.allocated.value_or(0)), size(*facts.requested),
                            size(*facts.free)));
  }
  if (facts.best && facts.total && facts.allocated) {
    return make(
        kExhausted, kHigh,
        fmt::format("{} are allocated on a device of {}; {} were requested, and the {} that are free or idle "
                    "are in pieces.",
                    size(*facts.allocated), size(*facts.total), size(*facts.requested), size(*facts.best)));
  }
  if (facts.capacity && facts.allocated) {
    return make(kExhausted, kHigh,
                fmt::format("{} of the pool's {} are in use and {} were requested.", size(*facts.allocated),
                            size(*facts.capacity), size(*facts.requested)));
  }
  return make(kExhausted, facts.free || facts.allocated ? kMedium : kLow,
              facts.free ? fmt::format("{} were requested and {} are free.", size(*facts.requested),
                                       size(*facts.free))
                         : fmt::format("{} were requested; the log does not say who holds the memory.",
                                       size(*facts.requested)));
}

constexpr Rule kRules[] = {
    {"Did a kernel's own check fail first?", index},
    {"Does the log name versions that do not match?", version},
    {"May this user use the device and its files?", permission},
    {"Is the device another's alone?", busy},
    {"Is it about something else than the GPU's memory?", not_the_gpus_memory},
    {"Is the request a size that anybody meant?", size_overflow},
    {"Is more allocated than the device has?", host_spill},
    {"Is the request larger than the device?", too_large},
    {"Was there no room for the context?", context},
    {"Did a limit that was set refuse?", cap},
    {"Is plenty free?", plenty_is_free},
    {"Did a pool take what a library needs to start?", preallocation},
    {"Did a second framework take the device?", second_framework},
    {"Do other processes hold a quarter or more?", other_process},
    {"Does this process hold more beside its pool than in it?", handle_leak},
    {"Was it for a workspace?", workspace},
    {"Is enough idle, but not in one piece?", fragmentation},
    {"Is it simply too little?", exhausted},
    {"Does the log doubt a version?", doubtful_version},
    {"Nothing decides", unknown},
};

}  // namespace

std::span<const Rule> rules() {
  return kRules;
}

Judgement judge(const Case& facts) {
  for (const Rule& rule : kRules) {
    if (Result result = rule.judge(facts)) return *result;
  }
  return {};
}

}  // namespace headroom::explain
