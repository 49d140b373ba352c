// Ranks as processes that mpirun started, on one host or several. Knows no device, and MPI's header stays in
// the sources beside it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/collective/collective.h"

namespace headroom {

// Whether a launcher of MPI (mpirun, srun) has started this process as one of several ranks.
bool is_started_by_mpi();

// This process among all of the job. One at a time, made once in a process: MPI cannot be started again.
class MpiWorld {
 public:
  virtual ~MpiWorld() = default;

  // In [0, size()).
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Counted among the ranks of this host alone: which of its devices a rank should take.
  virtual int local_rank() const = 0;
  // As MPI names it.
  virtual const std::string& host() const = 0;

  // This rank's end of a group of all ranks, which must all make it, in the same order; `timeout` bounds each
  // wait for the others, which failures call by their `names`, if there are any. Sums are taken in rank
  // order, as an in-process group takes them: the same bits. The world must outlive it. Throws
  // InvalidArgument for a timeout outside 1 ms to 1 year, CollectiveError when MPI fails.
  virtual std::unique_ptr<Collective> make_collective(std::chrono::milliseconds timeout,
                                                      std::vector<std::string> names = {}) = 0;

  // Ends MPI together with all other ranks, after the last collective is destroyed. It waits for all of them:
  // where one may not come, a rank just ends, and the launcher ends the others.
  virtual void finish() = 0;
};

// Starts MPI. Throws InvalidArgument in a build without MPI.
std::unique_ptr<MpiWorld> join_mpi_world();

}  // namespace headroom
