// Places blocks whose lifetimes are known in advance in the least memory that it can find ("dynamic storage
// allocation"). Pure arithmetic; knows no device.
#pragma once

#include <cstdint>
#include <span>

namespace headroom {

struct PlannedBlock {
  int64_t bytes = 0;
  int first = 0, end = 0;  // it lives in [first, end), in whatever counts time
  int64_t offset_bytes = 0;
  int64_t alignment = 1;  // alignment of the offset: a power of two
};

struct PackOptions {
  // The effort of the search for a placement at the lower bound, in blocks and steps examined: some 10^9 in
  // two seconds. More than some thousand blocks that meet gain little from it and get a quarter. A first
  // placement is always found, in n log n.
  int64_t max_work = int64_t{1} << 30;
};

struct Packing {
  int64_t height_bytes = 0;       // the end of the highest block
  int64_t lower_bound_bytes = 0;  // no placement is lower
  int64_t work = 0;

  bool is_optimal() const { return height_bytes == lower_bound_bytes; }
};

// Gives every block an offset at which it overlaps no block that is live at the same time. The result depends
// only on the blocks and the options. Throws InvalidArgument if 512 PiB, or 2^50 common divisors of
// all sizes, are live at once.
Packing pack(std::span<PlannedBlock> blocks, const PackOptions& options = {});

}  // namespace headroom
