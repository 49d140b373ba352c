#include <algorithm>
#include <array>
#include <cstdlib>

#include "runtime/collective/mpi/mpi_world.h"

namespace headroom {

bool is_started_by_mpi() {
  // Set by OpenMPI's mpirun, by MPICH's and Intel's, and by launchers with PMIx (srun --mpi=pmix).
  constexpr std::array kVariables = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"};
  return std::any_of(kVariables.begin(), kVariables.end(),
                     [](const char* variable) { return std::getenv(variable) != nullptr; });
}

}  // namespace headroom
