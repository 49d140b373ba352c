// How what may be refused, or find no room, ended: as figures of a scenario. Knows no scenario.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tools/repro/scenario.h"

namespace headroom::repro {

// Calls `act`; notes the outcome, "ok" or "refused", and of a refusal what is said before the first `end`.
void note_refusal(Measured& measured, std::string_view end, const std::function<void()>& act);

// Calls `act`; notes under that name "ok" or "out_of_memory".
void note_room(Measured& measured, std::string name, const std::function<void()>& act);

}  // namespace headroom::repro
