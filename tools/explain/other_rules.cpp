#include <fmt/format.h>

#include "tools/explain/rules.h"

namespace headroom::explain {
namespace {

using enum Verdict;
using enum Confidence;

// The largest GPU that there is has 288 GB; a request above this is no size that anybody meant.
constexpr int64_t kAbsurdBytes = 16 * 1024 * kGiB;
constexpr int64_t kAbsurdFactor = 100;  // of the device: tensors above that were never meant to fit it

}  // namespace

// A kernel's check is printed when the kernel fails; the calls that fail after it say anything. Memory that
// ran out before is another failure.
Result index(const Case& facts) {
  const bool memory_first = facts.is(Kind::kAllocation) && facts.figures[Field::kRequested].has_value();
  const auto counts = [&](const Failure* failure) {
    return failure != nullptr && !(memory_first && facts.failure->line < failure->line);
  };
  if (const Failure* failure = first_of(*facts.log, Kind::kIndex); counts(failure)) {
    return make(kIndexOutOfRange, kHigh,
                "A kernel checked an index and found it outside its table; after that every call on the "
                "device fails, "
                "with whatever words. No memory is missing.",
                failure);
  }
  if (const Failure* failure = first_of(*facts.log, Kind::kAssert); counts(failure)) {
    return make(
        kIndexOutOfRange, kMedium,
        "A check inside a kernel failed; nearly always it is an index (a label, a token) outside its table. "
        "After that every call on the device fails, with whatever words.",
        failure);
  }
  return std::nullopt;
}

Result version(const Case& facts) {
  const Failure* failure = first_of(*facts.log, Kind::kVersion);
  if (failure == nullptr || has_sized_allocation(*facts.log)) return std::nullopt;
  return make(
      kVersionMismatch, kHigh,
      "The log says that a library, the driver or the GPU is not of the version that the program was built "
      "for; what fails after that need not be about memory.",
      failure);
}

Result permission(const Case& facts) {
  const Failure* failure = first_of(*facts.log, Kind::kPermission);
  if (failure == nullptr || has_sized_allocation(*facts.log)) return std::nullopt;
  return make(kPermission, kHigh,
              "A file or device that the GPU's libraries need may not be used by this user.", failure);
}

Result busy(const Case& facts) {
  if (!facts.is(Kind::kBusy)) return std::nullopt;
  return make(
      kOtherProcess, kMedium,
      "The driver lets no further process onto the device: one that runs in exclusive mode has it, or the "
      "device is out of order.");
}

Result not_the_gpus_memory(const Case& facts) {
  if (facts.is(Kind::kHost)) {
    return make(kNotMemory, kHigh,
                "The machine ran out of its own memory, not the GPU of its. The GPU is not the cause.");
  }
  if (facts.is(Kind::kLateSetting)) {
    return make(
        kNotMemory, kHigh,
        "A memory setting was made after the GPU had been initialised, or not alike on all GPUs; no memory "
        "was missing.");
  }
  if (facts.is(Kind::kCrash)) {
    return make(kNotMemory, kMedium,
                "A kernel went astray (an address outside its memory, or a fault of the device); no memory "
                "was missing.");
  }
  if (facts.is(Kind::kNotAFailure)) {
    return make(
        kNotMemory, kHigh,
        "The message says itself that this is no failure: an algorithm with less workspace is used instead.");
  }
  return std::nullopt;
}

Result size_overflow(const Case& facts) {
  if (!facts.requested) return std::nullopt;
  const bool absurd =
      *facts.requested >= kAbsurdBytes || (facts.total && *facts.requested / kAbsurdFactor > *facts.total);
  if (!absurd) return std::nullopt;
  std::string reason = fmt::format("{} were requested", size(*facts.requested));
  if (facts.total) {
    reason += fmt::format(", {:.0f} times the device's {}",
                          static_cast<double>(*facts.requested) / static_cast<double>(*facts.total),
                          size(*facts.total));
  }
  return make(kSizeOverflow, kHigh,
              reason +
                  ": a size was computed wrongly (a 32-bit product, a length read from bad data), no memory "
                  "is missing.");
}

Result doubtful_version(const Case& facts) {
  if (!facts.is(Kind::kBrokenVersion)) return std::nullopt;
  return make(
      kVersionMismatch, kMedium,
      "A library of the version that the program asks for was not found, or the driver is too old for it.");
}

Result unknown(const Case& facts) {
  if (facts.failure == nullptr) {
    return make(kUnknown, kLow, "No message of a GPU failure that this command knows stands in the log.");
  }
  if (facts.is(Kind::kLaunch)) {
    return make(kUnknown, kLow,
                "A call of a library failed, which alone decides nothing: it does after an index out of "
                "range earlier in "
                "the program, with operands that do not suit it, with libraries that do not match and when "
                "it finds no "
                "room. The log has no figure that tells them apart.");
  }
  return make(kUnknown, kLow,
              "The status alone decides nothing: a library does not start for lack of memory, after an index "
              "out of range "
              "earlier in the program, and with libraries that do not match. The log has no figure that "
              "tells them apart.");
}

}  // namespace headroom::explain
