// The causes that are one fact of the start-up hook each: a sentence, steps and evidence in a table.
#pragma once

#include <vector>

#include "tools/run/candidates.h"

namespace headroom {

// Adds a candidate for each row whose fact has bytes.
void add_rows(const Facts& facts, const Facts& report, std::vector<Candidate>& all);

}  // namespace headroom
