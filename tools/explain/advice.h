// From a verdict to what to do: the first two rows of a list that fit the framework, its version and the
// settings that the log shows. Never a setting that is on already.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tools/explain/verdict.h"

namespace headroom::explain {

struct Advice {
  std::string command;  // for a shell, or the setting to make in the program
  std::string why;
};

std::array<Advice, 2> advise(const Case& facts, const Judgement& judgement);

}  // namespace headroom::explain
