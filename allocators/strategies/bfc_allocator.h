// Best fit with coalescing as in TensorFlow's BFCAllocator: regions from the driver are cut into blocks, and
// free neighbors merge. Serves grab-all, allow-growth and hard-limit, which differ in how regions grow.
#pragma once

#include <vector>

#include "allocators/strategies/segment_allocator.h"

namespace headroom {

class BfcAllocator final : public SegmentAllocator {
 public:
  enum class Growth : uint8_t {
    kAtOnce,   // one region of all that the limit allows, taken at construction; less if the device has less
    kDoubling  // regions of 2 MiB, 4 MiB, 8 MiB, ... as needed, up to the limit
  };

  // kAtOnce throws OutOfMemory when the device gives nothing at all; without a limit it takes all that is
  // free.
  BfcAllocator(Device& device, std::string name, std::optional<Limit> limit, Growth growth);

  // Sizes of the regions, oldest first.
  std::vector<int64_t> region_bytes() const;

 private:
  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;

  // Reserves a region with room for `bytes`; returns false if there is none.
  bool extend(int64_t bytes);

  BlockStore& store_ = new_store();
  int64_t next_region_bytes_ = 0;
};

}  // namespace headroom
