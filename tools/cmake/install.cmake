# Libraries for other projects: headroom::headroom (C++) and headroom::strategies (C). In this build, and in a project
# that adds it with FetchContent, the first is the static libraries. Installed, it is one shared library whose headers
# need nothing but a C++20 compiler: the libraries of third parties are inside and hidden.
add_library(headroom_library INTERFACE)
add_library(headroom::headroom ALIAS headroom_library)
target_link_libraries(headroom_library INTERFACE headroom_answers)
target_compile_features(headroom_library INTERFACE cxx_std_20)
if(NOT HEADROOM_INSTALL OR HEADROOM_SANITIZE)
  return()
endif()
include(CMakePackageConfigHelpers)

set(parts headroom_core headroom_kernels headroom_plan headroom_runtime headroom_answers
          headroom_$<IF:$<BOOL:${HEADROOM_HAS_CUDA}>,cuda,no_cuda>)
file(CONFIGURE OUTPUT shared_library.cpp CONTENT "// The library is made of the static ones.\n")
add_library(headroom_shared SHARED ${PROJECT_BINARY_DIR}/shared_library.cpp)
set(symbols ${PROJECT_SOURCE_DIR}/tools/cmake/symbols.map)
set(whole -Wl,--whole-archive)
foreach(part IN LISTS parts)
  list(APPEND whole $<TARGET_FILE:${part}>)
endforeach()
target_link_libraries(headroom_shared PRIVATE ${whole} -Wl,--no-whole-archive headroom_library)
target_link_options(headroom_shared PRIVATE LINKER:--version-script=${symbols} LINKER:--exclude-libs,libfmt.a
                                            LINKER:--as-needed)
# Before 1.0 each minor version may change the interface.
set_target_properties(headroom_shared PROPERTIES
  OUTPUT_NAME headroom_runtime EXPORT_NAME headroom VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINK_DEPENDS ${symbols})
target_compile_features(headroom_shared INTERFACE cxx_std_20)
target_include_directories(headroom_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/headroom>)

# The headers that programs include, and their includes: no others are installed.
set(headers
  answers/play.h
  allocators/strategies/strategy_text.h
  trace/read_trace.h
  runtime/app/place.h
  runtime/app/run_main.h
  runtime/app/runtime.h
  base/bytes.h
  base/errors.h
  runtime/graph/functions.h
  runtime/graph/gradients.h
  runtime/graph/optimizer.h
  runtime/graph/placement.h
  runtime/onnx/model_step.h
  runtime/onnx/read_model.h
  runtime/session/loader.h
  runtime/session/session.h)
set(left ${headers})
while(left)
  list(POP_FRONT left header)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${header})
  file(STRINGS ${PROJECT_SOURCE_DIR}/${header} lines REGEX "^#include \"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "#include \"([^\"]+)\".*" "\\1" included "${line}")
    if(NOT included IN_LIST headers)
      list(APPEND headers ${included})
      list(APPEND left ${included})
    endif()
  endforeach()
endwhile()
foreach(header IN LISTS headers)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/headroom/${folder} COMPONENT development)
endforeach()
install(FILES allocators/headroom_strategy.h allocators/c/headroom_rmm.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/headroom)
install(TARGETS headroom_shared headroom_strategies EXPORT headroom
        LIBRARY COMPONENT libraries NAMELINK_COMPONENT development)
install(EXPORT headroom NAMESPACE headroom:: DESTINATION ${package_folder} FILE headroom-config.cmake
        COMPONENT development)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/headroom-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/headroom-config-version.cmake DESTINATION ${package_folder} COMPONENT development)
install(FILES LICENSE THIRD_PARTY.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT libraries)
