// The part of NVIDIA's driver interface that takes device memory, as its public documentation states it, so
// that neither the library nor the stand-in driver needs CUDA's headers. Knows nothing of limits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headroom::guard {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUarray = struct CUarray_st*;
using CUmipmappedArray = struct CUmipmappedArray_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUmodule = struct CUmod_st*;
using CUlibrary = struct CUlib_st*;
using CUmemGenericAllocationHandle = unsigned long long;

inline constexpr CUresult kSuccess = 0, kInvalidValue = 1, kCudaOutOfMemory = 2, kNotInitialized = 3,
                          kNoDevice = 100, kInvalidDevice = 101, kInvalidContext = 201, kInvalidHandle = 400,
                          kNotFound = 500, kNotSupported = 801;

struct CUuuid {
  unsigned char bytes[16];
};
struct CUmemLocation {
  int type, id;  // 1: a device
};
struct CUmemAllocationProp {
  int type, requested_handle_types;
  CUmemLocation location;
  void* win32;
  unsigned char flags[8];
};
struct CUmemPoolProps {
  int type, handle_types;
  CUmemLocation location;
  void* win32;
  size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
};
struct CUDA_MEM_ALLOC_NODE_PARAMS {
  CUmemPoolProps pool;
  const void* access;
  size_t access_count, bytesize;
  CUdeviceptr dptr;
};
// N is 32 bits wide in version 1 of the interface.
template <typename N>
struct ArrayDescriptor {
  N width, height;
  int format;
  unsigned channels;
};
template <typename N>
struct Array3DDescriptor {
  N width, height, depth;
  int format;
  unsigned channels, flags;
};

inline constexpr int kPoolReleaseThreshold = 4, kPoolReserved = 5, kPoolUsed = 7;  // CUmemPool_attribute
inline constexpr int kGraphUsed = 0, kGraphReserved = 2;                           // CUgraphMem_attribute
inline constexpr int kMemAllocNode = 10;                                           // CUgraphNodeType
inline constexpr int kLimitStack = 0, kLimitPrintf = 1, kLimitHeap = 2;            // CUlimit
inline constexpr int kSmCount = 16, kThreadsPerSm = 39;                            // CUdevice_attribute
inline constexpr int kRelaxedCapture = 2;                                          // CUstreamCaptureMode
inline constexpr uint64_t kPerThreadStreams = 2;                                   // of cuGetProcAddress

// The management library.
using nvmlDevice_t = struct nvmlDevice_st*;
struct nvmlMemory_t {
  unsigned long long total, free, used;
};
struct nvmlMemory_v2_t {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct nvmlProcessInfo_t {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
inline constexpr unsigned long long kNvmlUnknown = ~0ull;

}  // namespace headroom::guard
