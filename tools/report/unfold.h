// Blocks with parts as views show them: what a pass through the block finds there, in place of one block for
// all. Knows no output.
#pragma once

#include "allocators/trace/trace.h"

namespace headroom::report {

// The trace, of which each block with parts is followed by one pass through it: its parts are allocated and
// freed as blocks of their own, at the block's time. The block itself asks for nothing any more, so that
// bytes are counted once; what the strategy took for it stays.
Trace unfold(Trace trace);

}  // namespace headroom::report
