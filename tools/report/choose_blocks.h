// Which blocks of a history a view shows one by one. Knows no view.
#pragma once

#include <vector>

#include "tools/report/history.h"

namespace headroom::report {

// At most 20,000 blocks in the order of their allocation: those that are live at the peak, the largest first,
// then the ones that held most bytes for longest; all others are too small or too short to be seen.
std::vector<size_t> choose_blocks(const History& history);

}  // namespace headroom::report
