#include "tools/explain/judge_log.h"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>
#include <utility>

namespace headroom::explain {
namespace {

using enum Cause;
using enum Confidence;

using Result = std::optional<LogJudgement>;

LogJudgement make(Cause cause, Confidence confidence, std::string reason, const Failure* witness = nullptr) {
  return {{cause, confidence, std::move(reason)}, witness};
}

// A kernel prints its failed check when it fails; the calls that fail after it say anything. Memory that ran
// out before is another failure.
Result index(const Case& found) {
  const bool memory_first = found.is(Kind::kAllocation) && found.figures[Field::kRequested].has_value();
  const auto counts = [&](const Failure* failure) {
    return failure != nullptr && !(memory_first && found.failure->line < failure->line);
  };
  if (const Failure* failure = first_of(*found.log, Kind::kIndex); counts(failure)) {
    return make(kIndexOutOfRange, kHigh,
                "a kernel found an index outside its table; after that every call on the device fails, with "
                "any message. No memory is missing",
                failure);
  }
  if (const Failure* failure = first_of(*found.log, Kind::kAssert); counts(failure)) {
    return make(kIndexOutOfRange, kMedium,
                "a check inside a kernel failed; nearly always it is an index (a label, a token) outside its "
                "table. After that every call on the device fails, with any message",
                failure);
  }
  return std::nullopt;
}

Result version(const Case& found) {
  const Failure* failure = first_of(*found.log, Kind::kVersion);
  if (failure == nullptr || has_sized_allocation(*found.log)) return std::nullopt;
  return make(kVersionMismatch, kHigh,
              "the log says that a library, the driver or the GPU is not of the version that the program was "
              "built for; what fails after that need not be about memory",
              failure);
}

Result permission(const Case& found) {
  const Failure* failure = first_of(*found.log, Kind::kPermission);
  if (failure == nullptr || has_sized_allocation(*found.log)) return std::nullopt;
  return make(kPermission, kHigh, "this user may not use a file or device that the GPU's libraries need",
              failure);
}

Result busy(const Case& found) {
  if (!found.is(Kind::kBusy)) return std::nullopt;
  return make(kOtherProcess, kMedium,
              "the driver lets no further process use the device: one that runs in exclusive mode has it, or "
              "the device is out of order");
}

Result not_the_gpus_memory(const Case& found) {
  if (found.is(Kind::kHost)) {
    return make(kNotMemory, kHigh,
                "the machine ran out of its own memory; the GPU's memory is not the cause");
  }
  if (found.is(Kind::kLateSetting)) {
    return make(kNotMemory, kHigh,
                "a memory setting was made after the GPU had been initialised, or differs between GPUs; no "
                "memory is missing");
  }
  if (found.is(Kind::kCrash)) {
    return make(kNotMemory, kMedium,
                "a kernel crashed (an address outside its memory, or a fault of the device); no memory is "
                "missing");
  }
  if (found.is(Kind::kNotAFailure)) {
    return make(kNotMemory, kHigh,
                "the message itself says that this is no failure: an algorithm with less workspace is used");
  }
  return std::nullopt;
}

Result pool_shrunk(const Case& found) {
  if (!found.is(Kind::kPoolShrunk)) return std::nullopt;
  return make(kOtherProcess, kLow,
              "the device gave TensorFlow's pool less than it had reported as free, so another process took "
              "memory at that time; TensorFlow goes on with less");
}

// Headroom judged with exact numbers when it failed, and printed the cause.
Result stated(const Case& found) {
  if (found.stated == nullptr) return std::nullopt;
  return make(found.stated->cause, kHigh, found.stated->reason);
}

Result numbers(const Case& found) {
  const std::optional<Judgement> judgement = judge(found);
  if (!judgement) return std::nullopt;
  LogJudgement result = {*judgement, nullptr};
  const bool is_usual_cause = result.cause == kPreallocation && !found.free && !found.pool_at_start;
  if (is_usual_cause && first_of(*found.log, Kind::kBrokenVersion) != nullptr) {
    result.confidence = kLow;
    result.reason = fmt::format(
        "{} takes nearly all memory before its libraries start, the usual cause; the log also doubts the "
        "version of the driver or of a library, which may be another cause",
        found.pool_of);
  } else if (is_usual_cause && found.log->cublas_hint) {
    result.reason += "; its own hint says the same";
  }
  return result;
}

Result doubtful_version(const Case& found) {
  if (!found.is(Kind::kBrokenVersion)) return std::nullopt;
  return make(kVersionMismatch, kMedium,
              "a library of the version that the program asks for was not found, or the driver is too old");
}

Result unknown(const Case& found) {
  if (found.failure == nullptr) return make(kUnknown, kLow, "no known GPU failure found in this log");
  if (found.is(Kind::kLaunch)) {
    return make(kUnknown, kLow,
                "a library's call failed, which alone does not say why: an index out of range earlier in the "
                "program, operands that do not suit the call, libraries that do not match and a lack of "
                "memory all look like this. The log has no numbers that tell them apart");
  }
  return make(
      kUnknown, kLow,
      "the status alone does not say why: a library does not start for lack of memory, after an index "
      "out of range earlier in the program, or when libraries do not match. The log has no numbers "
      "that tell them apart");
}

struct Rule {
  std::string_view question;
  Result (*judge)(const Case& found);
};

constexpr Rule kRules[] = {
    {"Did a kernel's own check fail first?", index},
    {"Does the log name versions that do not match?", version},
    {"May this user use the device and its files?", permission},
    {"Does another process have the device to itself?", busy},
    {"Is it about something other than the GPU's memory?", not_the_gpus_memory},
    {"Did a pool get less than was free?", pool_shrunk},
    {"Did Headroom print the cause?", stated},
    {"Do the numbers decide?", numbers},
    {"Does the log doubt a version?", doubtful_version},
    {"Nothing decides", unknown},
};

}  // namespace

LogJudgement judge_log(const Case& found) {
  for (const Rule& rule : kRules) {
    if (Result result = rule.judge(found)) return *result;
  }
  std::abort();  // the last rule always holds
}

}  // namespace headroom::explain
