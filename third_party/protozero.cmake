# protozero 1.8.2 (BSD-2-Clause): decodes the protobuf messages of ONNX files in place, without generated code. Its
# headers are in the tree, unchanged (commit af2f6e274e0a873a00e34d8c9ab99fca76898047): few systems package it, and
# a build then needs no network for it.
add_library(headroom_protozero INTERFACE)
target_include_directories(headroom_protozero SYSTEM INTERFACE
  $<BUILD_INTERFACE:${CMAKE_CURRENT_LIST_DIR}/protozero/include>)
