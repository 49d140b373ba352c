# One library a layer; its folders add their sources. tests/layering has the table of who may include whom.
add_library(headroom_core STATIC)  # base, device, ops, collective, trace, allocators
target_link_libraries(headroom_core PUBLIC headroom_options
                                    PRIVATE fmt::fmt nlohmann_json::nlohmann_json ${HEADROOM_GUNZIP} ${CMAKE_DL_LIBS})
add_library(headroom_kernels STATIC)
target_link_libraries(headroom_kernels PUBLIC headroom_core PRIVATE fmt::fmt Eigen3::Eigen nlohmann_json::nlohmann_json)
add_library(headroom_plan STATIC)  # runtime/graph, runtime/plan
target_link_libraries(headroom_plan PUBLIC headroom_core PRIVATE fmt::fmt)
add_library(headroom_runtime STATIC)  # runtime/onnx, runtime/session, runtime/app
target_link_libraries(headroom_runtime PUBLIC headroom_plan headroom_kernels
                                       PRIVATE headroom_protozero fmt::fmt CLI11::CLI11 nlohmann_json::nlohmann_json)
add_library(headroom_answers STATIC)
target_link_libraries(headroom_answers PUBLIC headroom_runtime PRIVATE fmt::fmt)

# The layers declare functions that one of two libraries defines: headroom_cuda, which links CUDA's libraries, or
# headroom_no_cuda, which says that there is no CUDA. A program links the first where the toolkit is installed, unless its
# property HEADROOM_LINK_NO_CUDA is set: with that property a program loads none of CUDA's libraries, which takes 70 ms.
add_library(headroom_no_cuda STATIC)
target_link_libraries(headroom_no_cuda PUBLIC headroom_core PRIVATE fmt::fmt)
set(choice headroom_no_cuda)
if(HEADROOM_HAS_CUDA)
  add_library(headroom_cuda STATIC)
  target_link_libraries(headroom_cuda PUBLIC headroom_kernels headroom_cuda_libraries
                                      PRIVATE fmt::fmt nlohmann_json::nlohmann_json ${CMAKE_DL_LIBS})
  # Device code calls the constexpr functions of base/random.h, and takes functions as lambdas.
  target_compile_options(headroom_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--extended-lambda>")
  headroom_compile_as(headroom_timed_pch headroom_cuda)
  # The property is the program's: the expression is evaluated for the target that is linked in the end.
  set(choice "$<IF:$<BOOL:$<TARGET_PROPERTY:HEADROOM_LINK_NO_CUDA>>,headroom_no_cuda,headroom_cuda>")
endif()
target_link_libraries(headroom_core INTERFACE "$<LINK_ONLY:${choice}>")

headroom_compile_as(headroom_timed_pch headroom_core headroom_plan)
headroom_compile_as(headroom_pch headroom_no_cuda headroom_runtime headroom_answers)
headroom_trusts_pointers(headroom_plan headroom_answers)
