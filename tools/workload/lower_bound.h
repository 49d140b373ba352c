// Strategies whose memory on a simulated GPU is a lower bound of that on a real one. Knows no command.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace headroom {

// Returns true if that holds for the strategy, as text for parse_strategy; see Strategy::gpu_reserved_ratio.
bool is_lower_bound(std::string_view strategy);

// One line for people on each of the strategies for which that holds; empty where there is none.
std::string lower_bound_note(std::span<const std::string> strategies);
std::string lower_bound_note(const std::string& strategy);

}  // namespace headroom
