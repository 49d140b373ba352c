# NCCL 2.19 or later (BSD-3-Clause; never fetched): sums between GPUs. Found beside the CUDA toolkit, not demanded; loaded
# by the programs that need it, so that nothing links it. Sets HEADROOM_HAS_NCCL and HEADROOM_NCCL_LIBRARY.
set(HEADROOM_HAS_NCCL FALSE)
if(HEADROOM_HAS_CUDA)
  find_path(HEADROOM_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_LIBRARY_ROOT}/include)
  find_library(HEADROOM_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR}
                                                                   ${CUDAToolkit_LIBRARY_ROOT}/lib
                                                                   ${CUDAToolkit_LIBRARY_ROOT}/lib64)
  if(HEADROOM_NCCL_INCLUDE AND HEADROOM_NCCL_LIBRARY)
    set(HEADROOM_HAS_NCCL TRUE)
    target_include_directories(headroom_cuda_libraries SYSTEM INTERFACE ${HEADROOM_NCCL_INCLUDE})
    message(STATUS "NCCL: ${HEADROOM_NCCL_LIBRARY}")
  else()
    message(STATUS "No NCCL: sums between GPUs go through the host")
  endif()
endif()
