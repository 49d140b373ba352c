// Replaces blocks that hold parts by their parts. Knows no file.
#pragma once

#include "trace/trace.h"

namespace headroom {

// Replaces the arena of a packed plan by its tensors: each block with parts is followed by one pass over its
// parts, which are allocated and freed as blocks of their own at the time of the block. The block itself then
// requests 0 bytes, so that no byte counts twice; its reserved size stays. The result has no parts.
Trace unfold(Trace trace);

}  // namespace headroom
