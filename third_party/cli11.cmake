# CLI11 2.1 (BSD-3-Clause): the command line of every program.
find_package(CLI11 2.1 QUIET)
if(NOT CLI11_FOUND)
  FetchContent_Declare(cli11 GIT_REPOSITORY https://github.com/CLIUtils/CLI11.git
                       GIT_TAG 6c7b07a878ad834957b98d0f9ce1dbe0cb204fc9  # v2.4.2
                       GIT_SHALLOW ON)
  FetchContent_MakeAvailable(cli11)
endif()
