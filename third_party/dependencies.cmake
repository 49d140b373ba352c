# One file per dependency, with its version, its licence and why it is here. What the system has is used; what it lacks
# or has too old is fetched at a pinned commit, under the same target name; protozero's headers are here. THIRD_PARTY.md
# lists them for users.
include(FetchContent)
# What is fetched is not ours to compile as one file: zlib's sources define the same names.
set(unity_build ${CMAKE_UNITY_BUILD})
set(CMAKE_UNITY_BUILD OFF)
foreach(dependency fmt eigen zlib isal cli11 json protozero)
  include(${CMAKE_CURRENT_LIST_DIR}/${dependency}.cmake)
endforeach()
if(HEADROOM_TESTS)
  include(${CMAKE_CURRENT_LIST_DIR}/googletest.cmake)
endif()
set(CMAKE_UNITY_BUILD ${unity_build})
include(${CMAKE_CURRENT_LIST_DIR}/cuda.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/mpi.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/nccl.cmake)
