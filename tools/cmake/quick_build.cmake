# Speeds up builds: precompiled headers, and less optimization of code that uses little time.
# Precompiled headers only save time: every file still includes what it uses, and .ci/run compiles without them.
set(common <algorithm> <array> <chrono> <cstdint> <cstring> <filesystem> <fstream> <functional> <map> <memory> <mutex>
    <numeric> <optional> <set> <span> <sstream> <stdexcept> <string> <string_view> <thread> <tuple> <unordered_map>
    <utility> <variant> <vector> <fmt/format.h>)
file(WRITE ${PROJECT_BINARY_DIR}/precompiled.cpp "")

# headroom_precompiled(NAME LEVEL SANITIZED_LEVEL LIBRARIES... HEADERS...): a target whose precompiled header others reuse.
# LEVEL is the optimisation of a Release build, which otherwise takes -O3: that doubles the time of a file full of
# templates. SANITIZED_LEVEL is that under a sanitizer, whose checks double the time of every optimisation.
function(headroom_precompiled name release_level sanitized_level)
  cmake_parse_arguments(ARG "" "" "LIBRARIES;HEADERS" ${ARGN})
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/precompiled.cpp)
  target_link_libraries(${name} PRIVATE headroom_options fmt::fmt ${ARG_LIBRARIES})
  set(level "$<$<CONFIG:Release>:${release_level}>$<$<CONFIG:RelWithDebInfo>:${sanitized_level}>")
  target_compile_options(${name} PRIVATE ${level})
  if(HEADROOM_PRECOMPILE)
    target_precompile_headers(${name} PRIVATE ${common} ${ARG_HEADERS})
  endif()
  set_target_properties(${name} PROPERTIES HEADROOM_LEVEL ${level} HEADROOM_PRECOMPILED ${name})
endfunction()

# In code that makes no pointers out of addresses and bytes, checks of every pointer cost a quarter of the time and find
# only faults that the address sanitizer also reports. These folders keep the checks.
set(handles_addresses base device collective runtime/onnx runtime/session trace allocators kernels)
list(JOIN handles_addresses "|" handles_addresses)
if(HEADROOM_SANITIZE MATCHES "undefined")
  target_compile_options(headroom_options
    INTERFACE "$<$<BOOL:$<TARGET_PROPERTY:HEADROOM_TRUSTS_POINTERS>>:-fno-sanitize=null,alignment>")
endif()

# headroom_compile_as(PRECOMPILED FOLDER [EXCEPT...]): the targets of a folder and of those below it, except those named
# and those that have one.
function(headroom_compile_as precompiled folder)
  get_property(below DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  list(REMOVE_ITEM below ${ARGN})
  foreach(inner IN LISTS below)
    headroom_compile_as(${precompiled} ${inner} ${ARGN})
  endforeach()
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  get_target_property(level ${precompiled} HEADROOM_LEVEL)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(given ${target} HEADROOM_LEVEL)
    if(type MATCHES "EXECUTABLE|(STATIC|SHARED|OBJECT)_LIBRARY" AND NOT given AND NOT target IN_LIST ARGN)
      set_target_properties(${target} PROPERTIES HEADROOM_LEVEL ${level} HEADROOM_PRECOMPILED ${precompiled})
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${level}>")
      if(NOT "${folder}/" MATCHES "^${PROJECT_SOURCE_DIR}/(${handles_addresses})/")
        set_target_properties(${target} PROPERTIES HEADROOM_TRUSTS_POINTERS ON)
      endif()
      if(HEADROOM_PRECOMPILE)
        target_link_libraries(${target} PRIVATE fmt::fmt)
        if(type STREQUAL "EXECUTABLE")
          target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)  # as the header was compiled
        endif()
        target_precompile_headers(${target} REUSE_FROM ${precompiled})
      endif()
    endif()
  endforeach()
endfunction()

# A wheel's user waits for the compiler. -Og and a late garbage collection save a quarter of a file's time, and a compiler
# then takes up to 1 GiB in place of 0.75.
set(level_of_pch -O2)
set(level_of_tools_pch -O1)
if(SKBUILD)
  set(level_of_pch -O1)
  set(level_of_tools_pch -Og)
  target_compile_options(headroom_options
    INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>)  # in KiB
endif()
headroom_precompiled(headroom_pch ${level_of_pch} -O1)
headroom_precompiled(headroom_tools_pch ${level_of_tools_pch} -O0 LIBRARIES nlohmann_json::nlohmann_json
                     HEADERS <iostream> <nlohmann/json.hpp>)
# Kernels and benchmarks keep -O3, and flags of their own.
headroom_compile_as(headroom_tools_pch ${PROJECT_SOURCE_DIR}/runtime/app)
headroom_compile_as(headroom_pch ${PROJECT_SOURCE_DIR}/kernels headroom_kernels)
set(optimised trace allocators tools/explain tools/report)  # the last two read large files
if(SKBUILD)  # a wheel: its user waits for the compiler, and answers by traces and logs
  foreach(folder base device ops collective runtime answers examples)
    headroom_compile_as(headroom_tools_pch ${PROJECT_SOURCE_DIR}/${folder})
  endforeach()
else()
  list(APPEND optimised base device ops collective runtime answers examples)
endif()
foreach(folder IN LISTS optimised)
  if(IS_DIRECTORY ${PROJECT_BINARY_DIR}/${folder})
    headroom_compile_as(headroom_pch ${PROJECT_SOURCE_DIR}/${folder})
  endif()
endforeach()
if(TARGET headroom)
  headroom_compile_as(headroom_tools_pch ${PROJECT_SOURCE_DIR}/tools headroom_torch)
endif()
if(HEADROOM_TESTS)
  headroom_precompiled(headroom_test_pch -O1 -O0 LIBRARIES GTest::gtest nlohmann_json::nlohmann_json
                       HEADERS <gtest/gtest.h> <nlohmann/json.hpp>)
  headroom_compile_as(headroom_test_pch ${PROJECT_SOURCE_DIR}/tests)
endif()
