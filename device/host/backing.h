// Choice of real memory or only addresses for a simulated device.
#pragma once

#include <cstdint>

namespace headroom {

enum class Backing : uint8_t {
  kHostMemory,  // kernels can run
  kNone  // no memory, and no address is handed out twice: for callers that never touch the bytes. Costs the
         // host nothing and is free of its limits (mappings, addresses)
};

}  // namespace headroom
