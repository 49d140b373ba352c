// What the rules of a verdict have in common, and those of them that are about something else than who holds
// how much memory. For verdict.cpp, which has the others and their order.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "runtime/base/bytes.h"
#include "tools/explain/verdict.h"

namespace headroom::explain {

using Result = std::optional<Judgement>;

inline std::string size(int64_t bytes) {
  return format_bytes(bytes);
}

inline Judgement make(Verdict verdict, Confidence confidence, std::string reason,
                      const Failure* witness = nullptr) {
  return {verdict, confidence, std::move(reason), witness};
}

// Each returns nothing where it does not hold; the last one always holds.
Result index(const Case& facts);
Result version(const Case& facts);
Result permission(const Case& facts);
Result busy(const Case& facts);
Result not_the_gpus_memory(const Case& facts);
Result size_overflow(const Case& facts);
Result doubtful_version(const Case& facts);
Result unknown(const Case& facts);

}  // namespace headroom::explain
