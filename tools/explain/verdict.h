// From the facts of a log to why it failed, by an ordered list of rules: the first that holds decides. Knows
// no advice and no output.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tools/explain/case.h"

namespace headroom::explain {

enum class Verdict {
  kPreallocation,
  kOtherProcess,
  kExhausted,
  kFragmentation,
  kCap,
  kTooLargeForDevice,
  kWorkspace,
  kHandleLeak,
  kIndexOutOfRange,
  kVersionMismatch,
  kPermission,
  kSizeOverflow,
  kHostSpill,
  kNotMemory,
  kUnknown,
};

enum class Confidence { kHigh, kMedium, kLow };

struct Judgement {
  Verdict verdict = Verdict::kUnknown;
  Confidence confidence = Confidence::kLow;
  std::string reason;                // one or two sentences with the numbers that decide
  const Failure* witness = nullptr;  // the failure that tells, null where that is the case's own
};

Judgement judge(const Case& facts);

std::string_view name_of(Verdict verdict);        // "other-process"
std::string_view headline_of(Verdict verdict);    // "another process holds the memory"
std::string_view name_of(Confidence confidence);  // "high"
std::string_view name_of(Framework framework);    // "PyTorch"; empty for kNone

// What the rules ask, in their order: for the documentation and for tests.
struct Rule {
  std::string_view asks;
  std::optional<Judgement> (*judge)(const Case& facts);
};
std::span<const Rule> rules();

}  // namespace headroom::explain
