// A number that tells processes apart. Knows nothing else.
#pragma once

#include <cstdint>

namespace headroom {

// The same at each call, and of this process alone, on any host and in any container, where numbers of
// processes repeat.
uint64_t process_nonce();

}  // namespace headroom
