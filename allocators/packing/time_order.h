// Places items in order of time, as an allocator does that takes the tightest gap: in n log n, for any
// number.
#pragma once

#include <cstdint>

#include "allocators/packing/problem.h"

namespace headroom::packing {

// The lowest of several placements: forwards, backwards, and outwards from the column in which most is live.
// Stops at the first that is no higher than `goal`. Raises `work` by the items placed.
Placement place_in_time(const Problem& problem, int64_t goal, int64_t& work);

}  // namespace headroom::packing
