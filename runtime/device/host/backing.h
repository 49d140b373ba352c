// Whether there are bytes behind the addresses of a simulated device.
#pragma once

#include <cstdint>

namespace headroom {

enum class Backing : uint8_t {
  kHostMemory,  // kernels can run
  kNone  // none, and no address is handed out twice: for those who never touch the bytes. Costs the host
         // nothing, and none of its limits (mappings, addresses) stands in the way
};

}  // namespace headroom
