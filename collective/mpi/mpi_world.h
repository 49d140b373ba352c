// Ranks as processes that mpirun started, on one host or several. Knows no device; only the sources include
// MPI's header.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "collective/collective.h"

namespace headroom {

// This process among all of the job. One at a time, made once in a process: MPI cannot be started again.
class MpiWorld {
 public:
  virtual ~MpiWorld() = default;

  // In [0, size()).
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The number among the ranks of this host: which of its devices the rank should take.
  virtual int local_rank() const = 0;
  // Returns the host's name as MPI reports it.
  virtual const std::string& host() const = 0;

  // This rank's end of a group of all ranks, which must all make their groups in the same order. `timeout`
  // bounds each wait for the others; errors call them by their `names`, if any. Sums are taken in rank order,
  // as in an in-process group: the same bits. The world must outlive it. Throws
  // InvalidArgument for a timeout outside 1 ms to 1 year, CollectiveError when MPI fails.
  virtual std::unique_ptr<Collective> make_collective(std::chrono::milliseconds timeout,
                                                      std::vector<std::string> names = {}) = 0;

  // Ends MPI, after the last collective is destroyed. It waits for all ranks: if one may never arrive, a rank
  // should just end, and the launcher ends the others.
  virtual void finish() = 0;
};

// Starts MPI. Throws InvalidArgument in a build without MPI.
std::unique_ptr<MpiWorld> join_mpi_world();

}  // namespace headroom
