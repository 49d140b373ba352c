# One file per dependency, with its version, its licence and why it is here. What the system has is used; what it lacks
# or has too old is fetched at a pinned commit, under the same target name; protozero's headers are here. THIRD_PARTY.md
# lists them for users.
include(FetchContent)
foreach(dependency fmt eigen zlib cli11 json protozero)
  include(${CMAKE_CURRENT_LIST_DIR}/${dependency}.cmake)
endforeach()
if(HEADROOM_TESTS)
  include(${CMAKE_CURRENT_LIST_DIR}/googletest.cmake)
endif()
include(${CMAKE_CURRENT_LIST_DIR}/cuda.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/mpi.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/nccl.cmake)
