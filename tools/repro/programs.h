// Programs that show the scenarios on a real card, in the frameworks that they come from. Data alone:
// programs.txt.
#pragma once

#include <string>
#include <string_view>

#include "tools/repro/scenario.h"

namespace headroom::repro {

inline constexpr std::string_view kProgramFrameworks[] = {"tensorflow", "pytorch", "jax"};

// The program, ready to be run by Python. Throws InvalidArgument if there is none in that framework, with
// those that there are.
std::string program_of(const Scenario& scenario, std::string_view framework);

}  // namespace headroom::repro
