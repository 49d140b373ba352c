// The keys of settings files: the options of all programs, so that one file serves them all. Knows no
// option's meaning.
#pragma once

#include <span>
#include <string_view>

namespace headroom {

// All keys, sorted.
std::span<const std::string_view> settings();
// Returns true if any program has this option.
bool is_setting(std::string_view key);

}  // namespace headroom
