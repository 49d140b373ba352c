// What to do about a cause: the first two rows of a list that fit the framework, its version and the settings
// that the log shows. Never a setting that is on already.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tools/explain/case.h"

namespace headroom::explain {

struct Advice {
  std::string command;  // for a shell, or the setting to make in the program
  std::string why;
};

std::array<Advice, 2> advise(const Case& found, Cause cause);

}  // namespace headroom::explain
