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

// Gives every block an offset at which it overlaps none that lives at the same time. Returns the height
// reached, in bytes: no more than a few percent above the largest sum of sizes live at once.
int64_t pack(std::span<PlannedBlock> blocks);

}  // namespace headroom
