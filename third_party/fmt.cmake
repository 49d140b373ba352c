# fmt 9 (MIT): formatting of messages and tables; std::format is missing from g++ 12. With HEADROOM_PORTABLE it is compiled
# in, because systems differ in its version.
find_package(fmt 9 QUIET)
if(NOT fmt_FOUND)
  FetchContent_Declare(fmt GIT_REPOSITORY https://github.com/fmtlib/fmt.git
                       GIT_TAG a33701196adfad74917046096bf5a2aa0ab0bb50  # 9.1.0
                       GIT_SHALLOW ON)
  FetchContent_MakeAvailable(fmt)
endif()
if(HEADROOM_PORTABLE)
  set_property(TARGET fmt::fmt APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
endif()
