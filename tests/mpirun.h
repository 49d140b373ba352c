// Runs programs under OpenMPI's mpirun, version 4 or 5, on this host only.
#pragma once

#include <string>

#include "tests/run_shell.h"

namespace headroom {

// `program` begins with an absolute path: PATH is empty, so that no test can use ssh, which version 4 looks
// for even if all ranks run on one host. OpenMPI refuses to run as root, or to run more ranks than there are
// processors, unless told to; version 5 reads some settings from PRTE_MCA_*. Both copy between processes by a
// system call that containers forbid, so it is disabled. No test needs a minute; timeout(1) ends one that
// hangs. MPI itself leaks memory.
inline std::string mpirun_command(int ranks, const std::string& program) {
  return "timeout -k 5 60 env -i PATH=/nonexistent HOME=/tmp ASAN_OPTIONS=detect_leaks=0 "
         "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent=/bin/false "
         "OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe "
         "OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none "
         "OMPI_MCA_btl_vader_single_copy_mechanism=none "
         "OMPI_MCA_btl_sm_single_copy_mechanism=none " HEADROOM_MPIRUN " -np " +
         std::to_string(ranks) + " " + program;
}

}  // namespace headroom
