// How ranks that share a collective come to links beside it. Knows nothing of what the links are for.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/collective/collective.h"
#include "runtime/collective/ranks/rank_link.h"

namespace headroom {

// The links of this rank by rank: of rank 0 to all others, of the others to rank 0, the rest closed. All
// ranks of `group` must call it together; `host` leads to rank 0. Throws InvalidArgument when a link cannot
// be made within `timeout`, CollectiveError as `group` does.
std::vector<RankLink> link_ranks(Collective& group, const std::string& host,
                                 std::chrono::milliseconds timeout);

}  // namespace headroom
