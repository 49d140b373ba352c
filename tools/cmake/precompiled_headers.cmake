# Precompiled headers: the standard library and fmt for all targets, GoogleTest and JSON beside them for tests.
# They only save time. Every file still includes what it uses: tests/layering and the round with clang in .ci/run
# compile without them.
file(WRITE ${PROJECT_BINARY_DIR}/precompiled.cpp "")

# headroom_precompiled(NAME LIBRARIES... HEADERS...): a target whose precompiled header others reuse.
function(headroom_precompiled name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES;HEADERS" ${ARGN})
  add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/precompiled.cpp)
  target_link_libraries(${name} PRIVATE headroom_options ${ARG_LIBRARIES})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()

set(common <algorithm> <array> <chrono> <cstdint> <cstring> <filesystem> <fstream> <functional> <map> <memory> <mutex>
    <numeric> <optional> <set> <span> <sstream> <stdexcept> <string> <string_view> <thread> <tuple> <unordered_map>
    <utility> <variant> <vector> <fmt/format.h>)
headroom_precompiled(headroom_pch LIBRARIES fmt::fmt HEADERS ${common})
if(HEADROOM_TESTS)
  headroom_precompiled(headroom_test_pch LIBRARIES fmt::fmt GTest::gtest nlohmann_json::nlohmann_json
                       HEADERS ${common} <gtest/gtest.h> <nlohmann/json.hpp>)
endif()

# headroom_use_precompiled(FOLDER PCH [EXCEPT...]): all targets of a folder and those below it.
function(headroom_use_precompiled folder pch)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(type MATCHES "EXECUTABLE|LIBRARY" AND NOT type STREQUAL "INTERFACE_LIBRARY" AND NOT target IN_LIST ARGN)
      target_link_libraries(${target} PRIVATE fmt::fmt)
      target_precompile_headers(${target} REUSE_FROM ${pch})
    endif()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    headroom_use_precompiled(${below} ${pch} ${ARGN})
  endforeach()
endfunction()

# Not the kernels, whose flags differ, and not plugins in C.
foreach(folder runtime allocators examples tools)
  if(IS_DIRECTORY ${PROJECT_BINARY_DIR}/${folder})
    headroom_use_precompiled(${PROJECT_SOURCE_DIR}/${folder} headroom_pch stack_strategy cuda_peers headroom_torch)
  endif()
endforeach()
if(HEADROOM_TESTS)
  headroom_use_precompiled(${PROJECT_SOURCE_DIR}/tests headroom_test_pch)
endif()
