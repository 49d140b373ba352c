// Statuses and messages that several causes print, each with its causes in the order of how often people
// found them, and with what would confirm each. A table; knows no log.
#pragma once

#include <span>
#include <string_view>

#include "base/cause.h"

namespace headroom::explain {

// What would confirm that the device is full.
inline constexpr std::string_view kNearlyFull =
    "the device is nearly full at that moment: headroom who, or nvidia-smi, beside the run";

struct PossibleCause {
  Cause cause;
  std::string_view reason;
  std::string_view confirm;
};

struct AmbiguousStatus {
  std::string_view name;  // as the message has it
  std::span<const PossibleCause> causes;
};

// The first row whose name is in `text`; the last row fits any text.
const AmbiguousStatus& ambiguous_status(std::string_view text);

}  // namespace headroom::explain
