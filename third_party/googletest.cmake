# GoogleTest 1.11 (BSD-3-Clause): the tests.
find_package(GTest 1.11 QUIET)
if(NOT GTest_FOUND)
  set(INSTALL_GTEST OFF CACHE INTERNAL "")
  FetchContent_Declare(googletest GIT_REPOSITORY https://github.com/google/googletest.git
                       GIT_TAG f8d7d77c06936315286eb55f8de22cd23c188571  # v1.14.0
                       GIT_SHALLOW ON)
  FetchContent_MakeAvailable(googletest)
endif()
