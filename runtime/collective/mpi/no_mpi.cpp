// What a build without MPI answers where the others join the other ranks.
#include "runtime/base/errors.h"
#include "runtime/collective/mpi/mpi_world.h"

namespace headroom {

std::unique_ptr<MpiWorld> join_mpi_world() {
  throw InvalidArgument(
      "mpirun has started this as one of several ranks, and this build has no MPI: it was made where OpenMPI "
      "(libopenmpi-dev) was not found");
}

}  // namespace headroom
