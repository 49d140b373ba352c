// Independent pieces of work on several threads of the host. Knows nothing of the work.
#pragma once

#include <cstddef>
#include <functional>

namespace headroom {

// Calls work(i) for each i in [0, count), on at most `most_threads` threads, the caller among them, and no
// more than there are cores. Pieces begin in order. Throws what the first piece that failed has thrown, after
// all.
void side_by_side(size_t count, size_t most_threads, const std::function<void(size_t i)>& work);

}  // namespace headroom
