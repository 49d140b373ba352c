// join_mpi_world in a build without MPI.
#include "base/errors.h"
#include "collective/mpi/mpi_world.h"

namespace headroom {

std::unique_ptr<MpiWorld> join_mpi_world() {
  throw InvalidArgument(
      "mpirun has started this as one of several ranks, and this build has no MPI: it was made where OpenMPI "
      "(libopenmpi-dev) was not found");
}

}  // namespace headroom
