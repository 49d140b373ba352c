# MPI 3.1 (OpenMPI 4, BSD-3-Clause; never fetched): ranks as processes, on one host or several. Found, not demanded:
# HEADROOM_MPI says whether to look (AUTO), to insist (ON) or not to look (OFF). Sets HEADROOM_HAS_MPI.
set(HEADROOM_HAS_MPI FALSE)
if(NOT HEADROOM_MPI)
  return()
endif()
set(MPI_CXX_SKIP_MPICXX TRUE)  # the C++ interface that MPI 3.0 has removed
find_package(MPI 3.1 QUIET COMPONENTS CXX)
if(MPI_CXX_FOUND)
  set(HEADROOM_HAS_MPI TRUE)
  message(STATUS "MPI ${MPI_CXX_VERSION}: ${MPIEXEC_EXECUTABLE}")
elseif(HEADROOM_MPI STREQUAL "AUTO")
  message(STATUS "No MPI: ranks are threads of one process")
else()
  message(FATAL_ERROR "HEADROOM_MPI=${HEADROOM_MPI}: MPI 3.1 was not found")
endif()
