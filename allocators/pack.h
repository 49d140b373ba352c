// Places blocks whose lifetimes are known in advance. Pure arithmetic; knows no device.
#pragma once

#include <cstdint>
#include <span>

namespace headroom {

struct PlannedBlock {
  int64_t bytes = 0;
  int first = 0, end = 0;  // it lives in [first, end), in whatever counts time
  int64_t offset_bytes = 0;
};

// Gives every block an offset at which it overlaps no block that lives at the same time. Returns the height
// reached, in bytes: no more than a few percent above the largest sum of sizes live at once. Work grows as
// n log n; `work`, if not null, is raised by the number of blocks looked at. The result depends on `blocks`
// alone. Throws InvalidArgument when more than 4 PiB live at once.
int64_t pack(std::span<PlannedBlock> blocks, int64_t* work = nullptr);

}  // namespace headroom
