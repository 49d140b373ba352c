// Connects ranks that share a collective by links beside it. Knows no use of the links.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/collective/collective.h"
#include "runtime/collective/ranks/rank_link.h"

namespace headroom {

// The links of this rank, by rank: rank 0 has one to each other rank, the others have one to rank 0, and the
// rest are closed. All ranks of `group` must call it together; `host` is this rank's. Throws InvalidArgument
// when a link cannot be made within `timeout`, CollectiveError as `group` does.
std::vector<RankLink> link_ranks(Collective& group, const std::string& host,
                                 std::chrono::milliseconds timeout);

}  // namespace headroom
