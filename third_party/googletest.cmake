# GoogleTest 1.12 (BSD-3-Clause): the tests.
find_package(GTest 1.12 QUIET)
if(NOT GTest_FOUND)
  FetchContent_Declare(googletest GIT_REPOSITORY https://github.com/google/googletest.git GIT_TAG v1.14.0 GIT_SHALLOW ON)
  FetchContent_MakeAvailable(googletest)
endif()
