# The code for NVIDIA GPUs has libraries of its own. headroom_device, headroom_collective and headroom_kernels declare
# functions that one of two libraries defines: X_cuda, which links CUDA's libraries, or X_no_cuda, which reports that
# there is no CUDA. A program links the first if the toolkit is installed, unless headroom_program() says otherwise.

# headroom_program(NAME CUDA ON|OFF) decides if a program links the code for GPUs. With OFF a program loads none of
# CUDA's libraries, which takes 70 ms.
function(headroom_program name)
  cmake_parse_arguments(ARG "" "CUDA" "" ${ARGN})
  if(ARG_CUDA)
    set_target_properties(${name} PROPERTIES HEADROOM_LINK_NO_CUDA OFF)
  else()
    set_target_properties(${name} PROPERTIES HEADROOM_LINK_NO_CUDA ON)
  endif()
endfunction()

# headroom_cuda_choice(LIBRARY NO_CUDA SOURCES...): makes LIBRARY_no_cuda, and has every program that links LIBRARY link it or
# LIBRARY_cuda.
function(headroom_cuda_choice library)
  cmake_parse_arguments(ARG "" "" "NO_CUDA" ${ARGN})
  add_library(${library}_no_cuda STATIC ${ARG_NO_CUDA})
  target_link_libraries(${library}_no_cuda PUBLIC ${library})
  set(choice ${library}_no_cuda)
  if(HEADROOM_HAS_CUDA)
    # The property is the program's: the expression is evaluated for the target that is linked in the end.
    set(choice "$<IF:$<BOOL:$<TARGET_PROPERTY:HEADROOM_LINK_NO_CUDA>>,${library}_no_cuda,${library}_cuda>")
  endif()
  target_link_libraries(${library} INTERFACE "$<LINK_ONLY:${choice}>")
endfunction()

# headroom_cuda_units(TARGET SOURCES...) adds .cu files, five as one if the preset does so for C++ files. Most of nvcc's
# time goes into headers.
function(headroom_cuda_units target)
  set(files ${ARGN})
  if(NOT CMAKE_UNITY_BUILD)
    target_sources(${target} PRIVATE ${files})
    return()
  endif()
  while(files)
    list(SUBLIST files 0 5 unit)
    list(REMOVE_ITEM files ${unit})
    list(GET unit 0 first)
    get_filename_component(first ${first} NAME)
    list(TRANSFORM unit REPLACE "(.+)" "#include \"${CMAKE_CURRENT_SOURCE_DIR}/\\1\"\n")
    string(CONCAT text ${unit})
    file(CONFIGURE OUTPUT ${target}/from_${first} CONTENT "${text}" @ONLY)
    target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${target}/from_${first})
  endwhile()
endfunction()
