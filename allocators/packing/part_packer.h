// Packs items that live at overlapping times: heuristics first, then search.
#pragma once

#include <cstdint>

#include "allocators/packing/problem.h"

namespace headroom::packing {

struct PartPacking {
  Placement placement;
  int64_t lower_bound = 0;  // proven
  int64_t work = 0;
};

// Stops at a placement no higher than `goal`, or after about max_work.
PartPacking pack_part(const Problem& problem, int64_t goal, int64_t max_work);

}  // namespace headroom::packing
