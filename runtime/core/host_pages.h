// Host memory that stands for device memory: large ranges cost nothing until they are touched, so a pool of
// 140 GiB can be simulated on a small machine. Counts nothing.
#pragma once

#include <cstdint>

namespace headroom {

// `bytes` (> 0) of host memory aligned to 256 at least, not initialised; null when the host has none.
void* take_host_pages(int64_t bytes) noexcept;
// Gives back what take_host_pages returned for the same `bytes`; a null pointer does nothing.
void return_host_pages(void* pointer, int64_t bytes) noexcept;

}  // namespace headroom
