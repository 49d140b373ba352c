// Programs under mpirun, as a user starts them, here with what a container of few processors needs.
#pragma once

#include <string>

#include "tests/run_shell.h"

namespace headroom {

// OpenMPI refuses to run as root or more ranks than processors unless told, and copies between processes by a
// call that containers forbid. No test of ours needs a minute; one that hangs must not hold up the others.
// Leaks are MPI's own.
inline std::string mpirun_command(int ranks, const std::string& program) {
  return "env -i PATH=/usr/bin:/bin HOME=/tmp OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
         "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none "
         "OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none "
         "ASAN_OPTIONS=detect_leaks=0 timeout -k 5 60 " HEADROOM_MPIRUN " -np " +
         std::to_string(ranks) + " " + program;
}

}  // namespace headroom
