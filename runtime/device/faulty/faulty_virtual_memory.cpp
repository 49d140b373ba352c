#include "runtime/device/faulty/faulty_virtual_memory.h"

namespace headroom {

std::optional<PhysicalBlock> FaultyVirtualMemory::try_create(int64_t bytes) {
  if (faults_.next_call_fails()) return std::nullopt;
  // Only when capacity has dropped: otherwise upstream knows better what fits.
  if (faults_.dropped_bytes() > 0 && bytes > memory_.info().free) return std::nullopt;
  return upstream_.try_create(bytes);
}

}  // namespace headroom
