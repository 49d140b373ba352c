#include "collective/collective_call.h"

#include <fmt/format.h>

#include "base/errors.h"

namespace headroom {
namespace {

// Keeps deadlines inside the range of the clock, however long "forever" is for the caller.
constexpr std::chrono::milliseconds kMaxTimeout = std::chrono::hours(365 * 24);

std::string call_text(const CollectiveCall& call) {
  switch (call.kind) {
    case CollectiveCall::Kind::kAllReduceSum:
      return fmt::format("all_reduce_sum of {} floats", call.count);
    case CollectiveCall::Kind::kBroadcast:
      return fmt::format("broadcast of {} bytes from rank {}", call.count, call.root);
    case CollectiveCall::Kind::kBarrier:
      break;
  }
  return "barrier";
}

}  // namespace

const char* CollectiveCall::name() const {
  switch (kind) {
    case Kind::kAllReduceSum:
      return "all_reduce_sum";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kBarrier:
      break;
  }
  return "barrier";
}

std::string mismatch_text(const CollectiveCall& of_first, int rank, const CollectiveCall& of_rank) {
  return fmt::format("rank 0 called {}, rank {} called {}", call_text(of_first), rank, call_text(of_rank));
}

void check_root(int root, int size) {
  if (root >= 0 && root < size) return;
  throw InvalidArgument(fmt::format("broadcast from rank {} in a group of {}", root, size));
}

void check_collective_timeout(std::chrono::milliseconds timeout) {
  if (timeout >= std::chrono::milliseconds(1) && timeout <= kMaxTimeout) return;
  throw InvalidArgument(fmt::format("a timeout of {} ms: must be from 1 ms to 1 year", timeout.count()));
}

}  // namespace headroom
