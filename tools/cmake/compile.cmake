# Compile options of the project's code: warnings, optimization, precompiled headers, several files as one. Fetched code
# has none of them.
add_library(headroom_options INTERFACE)
target_include_directories(headroom_options INTERFACE ${PROJECT_SOURCE_DIR})
set(warnings -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
# Not for the code of others that links this. Warnings take a twentieth of a compiler's time: CI's first build has them, and
# builds to edit and to debug.
if(PROJECT_IS_TOP_LEVEL AND (HEADROOM_WERROR OR NOT CMAKE_BUILD_TYPE MATCHES "^Rel"))
  target_compile_options(headroom_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>"
                                                    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>")
endif()
if(HEADROOM_WERROR)
  target_compile_options(headroom_options INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-Werror>")
endif()
# GCC 12 sees overlapping copies inside its own std::string (its bug 105651).
target_compile_options(headroom_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>)
if(HEADROOM_SANITIZE)
  target_compile_options(headroom_options INTERFACE -fsanitize=${HEADROOM_SANITIZE} -fno-sanitize-recover=all
                                                    -fno-omit-frame-pointer)
  target_link_options(headroom_options INTERFACE -fsanitize=${HEADROOM_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # shows libFuzzer which branches an input takes, see tests/fuzz
    target_compile_options(headroom_options INTERFACE -fsanitize=fuzzer-no-link)
  endif()
endif()
if(HEADROOM_PORTABLE)
  target_link_options(headroom_options INTERFACE LINKER:--as-needed)  # leaves out libraries whose code is compiled in
endif()
# A late garbage collection saves time; a compiler then takes up to 1.4 GiB.
target_compile_options(headroom_options
  INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>)  # in KiB

# headroom_sources(TARGET FILES...): adds sources. A preset with CMAKE_UNITY_BUILD compiles this many of a target as one file,
# since every one of these compiles its own copy of what the headers' templates make.
set(files_as_one 40)
function(headroom_sources target)
  target_sources(${target} PRIVATE ${ARGN})
  get_property(count TARGET ${target} PROPERTY HEADROOM_SOURCES)
  foreach(file IN LISTS ARGN)
    math(EXPR count "${count} + 1")
    math(EXPR unit "${count} / ${files_as_one}")
    set_source_files_properties(${file} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${unit})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP HEADROOM_SOURCES ${count})
endfunction()

# headroom_precompiled(NAME LEVEL SANITIZED_LEVEL LIBRARIES... HEADERS...): a precompiled header, and the optimization of those
# who use it in a Release build and under a sanitizer. Release otherwise takes -O3, which doubles the time of a file full of
# templates; -Og takes two thirds of -O1's, and no command or step was slower. Sanitizers' checks double the time of every
# optimization. Precompiled headers only save time: every file still
# includes what it uses, and .ci/run compiles without them.
file(WRITE ${PROJECT_BINARY_DIR}/precompiled.cpp "")
function(headroom_precompiled name level sanitized_level)
  cmake_parse_arguments(ARG "" "" "LIBRARIES;HEADERS" ${ARGN})
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/precompiled.cpp)
  target_link_libraries(${name} PRIVATE headroom_options fmt::fmt nlohmann_json::nlohmann_json ${ARG_LIBRARIES})
  set(level "$<$<CONFIG:Release>:${level}>$<$<CONFIG:RelWithDebInfo>:${sanitized_level}>")
  target_compile_options(${name} PRIVATE ${level})
  set_target_properties(${name} PROPERTIES HEADROOM_LEVEL ${level})
  if(HEADROOM_PRECOMPILE)
    target_precompile_headers(${name} PRIVATE
      <algorithm> <array> <chrono> <cstdint> <cstring> <filesystem> <fstream> <functional> <iostream> <map> <memory> <mutex>
      <numeric> <optional> <set> <span> <sstream> <stdexcept> <string> <string_view> <thread> <tuple> <unordered_map>
      <utility> <variant> <vector> <fmt/format.h> <nlohmann/json.hpp> ${ARG_HEADERS})
  endif()
endfunction()
set(timed_level -O2)
if(SKBUILD)  # a wheel's user waits for the compiler
  set(timed_level -O1)
endif()
headroom_precompiled(headroom_timed_pch ${timed_level} -O1)  # strategies and searches
headroom_precompiled(headroom_pch -Og -O1)
if(HEADROOM_TESTS)
  headroom_precompiled(headroom_test_pch -O0 -O0 LIBRARIES GTest::gtest HEADERS <gtest/gtest.h>)
endif()

# headroom_compile_as(PRECOMPILED TARGETS...). Kernels and benchmarks keep -O3, and flags of their own.
function(headroom_compile_as precompiled)
  get_target_property(level ${precompiled} HEADROOM_LEVEL)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${level}>")
    if(HEADROOM_PRECOMPILE)
      target_link_libraries(${target} PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)  # as the header was compiled, for programs
      target_precompile_headers(${target} REUSE_FROM ${precompiled})
    endif()
  endforeach()
endfunction()

# headroom_trusts_pointers(TARGETS...): code that makes no pointers out of addresses and bytes. There checks of every pointer
# cost a quarter of the time and find what the address sanitizer reports as well.
function(headroom_trusts_pointers)
  if(HEADROOM_SANITIZE MATCHES "undefined")
    foreach(target IN LISTS ARGN)
      target_compile_options(${target} PRIVATE -fno-sanitize=null,alignment,object-size,pointer-overflow,vptr)
    endforeach()
  endif()
endfunction()
