// Independent pieces of work on several threads of the host. Knows nothing of the work.
#pragma once

#include <cstddef>
#include <functional>

namespace headroom {

// Calls work(i) for each i in [0, count), on at most `most_threads` threads including the caller, and at most
// one per core. Pieces begin in order. If pieces fail, throws the exception of the first one after all have
// ended.
void side_by_side(size_t count, size_t most_threads, const std::function<void(size_t i)>& work);

}  // namespace headroom
