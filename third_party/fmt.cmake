# fmt 9 (MIT): formatting of messages and tables; std::format is missing from g++ 12.
find_package(fmt 9 QUIET)
if(NOT fmt_FOUND)
  FetchContent_Declare(fmt GIT_REPOSITORY https://github.com/fmtlib/fmt.git GIT_TAG 9.1.0 GIT_SHALLOW ON)
  FetchContent_MakeAvailable(fmt)
endif()
