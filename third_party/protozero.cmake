# protozero 1.7 (BSD-2-Clause): decodes the protobuf messages of ONNX files in place, without generated code. Headers only.
find_path(HEADROOM_PROTOZERO_INCLUDE protozero/pbf_reader.hpp)
if(NOT HEADROOM_PROTOZERO_INCLUDE)
  # A SOURCE_SUBDIR without CMakeLists.txt keeps its own tests out. The commit of v1.7.1.
  FetchContent_Declare(protozero GIT_REPOSITORY https://github.com/mapbox/protozero.git
                                 GIT_TAG f379578a3f7c8162aac0ac31c2696de09a5b5f93 SOURCE_SUBDIR cmake/none)
  FetchContent_MakeAvailable(protozero)
  set(HEADROOM_PROTOZERO_INCLUDE ${protozero_SOURCE_DIR}/include)
endif()
add_library(headroom_protozero INTERFACE)
target_include_directories(headroom_protozero SYSTEM INTERFACE ${HEADROOM_PROTOZERO_INCLUDE})
