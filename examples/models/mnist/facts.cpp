#include "examples/models/mnist/facts.h"

#include <fmt/format.h>

namespace headroom {

std::string describe_differences(const Facts& own, const Facts& others, std::string_view where) {
  std::string text;
  for (const auto& [fact, value] : own) {
    const auto found = others.find(fact);
    if (found != others.end() && found->second == value) continue;
    if (!text.empty()) text += "; ";
    text +=
        fmt::format("{} is {}, {} {}", fact, value, where, found == others.end() ? "nothing" : found->second);
  }
  return text;
}

}  // namespace headroom
