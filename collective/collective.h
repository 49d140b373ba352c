// Calls that all replicas of a data-parallel program make together, on host memory. Knows no tensor, no
// graph, no device and no way between ranks.
#pragma once

#include <cstddef>
#include <span>

namespace headroom {

// One rank's end of a group. Each call blocks until every rank of the group has made it; all ranks make the
// same calls with the same sizes in the same order, on spans that do not overlap. One thread at a time may
// use it. Destroying it means that the rank has died: later and waiting calls of the others throw, so a rank
// that unwinds stops them.
//
// Each call throws CollectiveError
// - when a rank made another call, or the same one with another size or root: on all ranks, before any byte
//   has moved; the group stays usable;
// - when a rank has died or did not arrive in time: on all ranks, now and in every later call.
class Collective {
 public:
  virtual ~Collective() = default;

  // In [0, size()).
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Replaces each element by its sum over all ranks. The order of additions depends only on the number of
  // ranks: every rank gets the same bits, on every run.
  virtual void all_reduce_sum(std::span<float> values) = 0;
  // Replaces the bytes by those of rank `root`. Throws InvalidArgument when there is no such rank.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;
  // Returns once all ranks have made this call.
  virtual void barrier() = 0;
};

// Replaces the value, which is plain bytes, by rank `root`'s. Throws as `group` does.
template <typename T>
void broadcast_value(Collective& group, T& value, int root) {
  group.broadcast(std::as_writable_bytes(std::span(&value, 1)), root);
}

}  // namespace headroom
