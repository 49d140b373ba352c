// Calls that all replicas of a data-parallel program make together, on host memory. Knows no tensor, no graph
// and no device, nor how the ranks reach each other.
#pragma once

#include <cstddef>
#include <span>

namespace headroom {

// One rank's end of a group. Each call blocks until every rank of the group has made it, with the same sizes
// and in the same order; spans of different ranks do not overlap. One thread at a time may use it. To destroy
// it is to die: calls that the others make or wait in from then on throw, so a rank that unwinds stops them.
//
// Each call throws CollectiveError
// - when a rank made another call, or the same one with another size or root: on all ranks, before any byte
//   has moved, and the next call finds the group as it was;
// - when a rank has died or did not come in time: on all ranks, now and in every later call.
class Collective {
 public:
  virtual ~Collective() = default;

  // In [0, size()).
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Replaces each element by its sum over all ranks, added up in an order that depends on nothing but the
  // number of ranks: every rank gets the same bits, on every run.
  virtual void all_reduce_sum(std::span<float> values) = 0;
  // Replaces the bytes by those of rank `root`. Throws InvalidArgument when there is no such rank.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;
  // Returns once all ranks have come here.
  virtual void barrier() = 0;
};

}  // namespace headroom
