#include "tools/workload/lower_bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "allocators/strategies/strategy.h"
#include "allocators/strategies/strategy_text.h"

namespace headroom {
namespace {

// 0 where a real GPU takes what the simulated one takes.
double gpu_ratio(std::string_view strategy) {
  const StrategySettings settings = parse_strategy(strategy);
  return settings.plugin_path.empty() ? find_strategy(settings.name).gpu_reserved_ratio : 0;
}

}  // namespace

bool is_lower_bound(std::string_view strategy) {
  return gpu_ratio(strategy) > 0;
}

std::string lower_bound_note(std::span<const std::string> strategies) {
  std::vector<std::string> noted;
  std::string note;
  for (const std::string& strategy : strategies) {
    if (!is_lower_bound(strategy) || std::ranges::find(noted, strategy) != noted.end()) continue;
    noted.push_back(strategy);
    note += fmt::format("{}{}: a lower bound; on a GPU it has reserved up to {:.2f} of the largest live set",
                        note.empty() ? "" : "\n", strategy, gpu_ratio(strategy));
  }
  return note;
}

std::string lower_bound_note(const std::string& strategy) {
  return lower_bound_note(std::span(&strategy, 1));
}

}  // namespace headroom
