# zlib (zlib licence): gzipped data files.
find_package(ZLIB QUIET)
if(NOT ZLIB_FOUND)
  set(ZLIB_BUILD_EXAMPLES OFF CACHE INTERNAL "")
  set(SKIP_INSTALL_ALL ON)
  FetchContent_Declare(zlib GIT_REPOSITORY https://github.com/madler/zlib.git
                       GIT_TAG 51b7f2abdade71cd9bb0e7a373ef2610ec6f9daf  # v1.3.1
                       GIT_SHALLOW ON)
  FetchContent_MakeAvailable(zlib)
  # Its header zconf.h is generated into the build folder.
  target_include_directories(zlibstatic INTERFACE ${zlib_SOURCE_DIR} ${zlib_BINARY_DIR})
  add_library(ZLIB::ZLIB ALIAS zlibstatic)
endif()
