#include "tools/explain/messages.h"

#include <iterator>
#include <string>
#include <vector>

namespace headroom::explain {
namespace {

using enum Kind;
using enum Framework;

constexpr Message kMessages[] = {
    // PyTorch's caching allocator: the head, then the pieces that three generations of its text share.
    {kAllocation, kTorch, "CUDA out of memory"},
    {kAllocation, kTorch, "HIP out of memory"},
    {kAllocation, kTorch, "torch.OutOfMemoryError: "},
    {kAllocation, kTorch, "torch.cuda.OutOfMemoryError: "},
    {kAllocation, kTorch, "CUDA error: out of memory"},
    {kAllocation, kTorch, "cuda runtime error (2) : out of memory"},
    {kPiece, kTorch, "Tried to allocate {requested}"},
    {kPiece, kTorch,
     "(GPU {*}; {total} total capacity; {allocated} already allocated; {free} free; {idle} cached", 1000},
    {kPiece, kTorch,
     "(GPU {*}; {total} total capacity; {allocated} already allocated; {free} free; {reserved} reserved in "
     "total "
     "by PyTorch",
     1004},
    {kBackground, kTorch, "If reserved memory is >> allocated memory try setting max_split_size_mb", 1010},
    {kPiece, kTorch, " has a total capacty of {total} of which {free} is free", 2001},
    {kPiece, kTorch, " has a total capacity of {total} of which {free} is free", 2001},
    {kBackground, kTorch, "is large try setting max_split_size_mb", 2000},
    {kBackground, kTorch, "is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments", 2002},
    {kBackground, kTorch, "is large try setting PYTORCH_ALLOC_CONF=expandable_segments", 2009},
    {kDetail, kTorch, "Process {pid#} has {holder} memory in use"},
    {kDetail, kTorch, "this process has {process} memory in use"},
    {kDetail, kTorch, "is free. {limit} allowed;"},
    {kDetail, kTorch, "in use. {limit} allowed;"},
    {kPiece, kTorch, "Of the allocated memory {allocated} is allocated by PyTorch"},
    {kDetail, kTorch, "with {private} allocated in private pools"},
    {kDetail, kTorch, "and {idle} is reserved by PyTorch but unallocated"},
    // ... and its stream-ordered backend.
    {kAllocation, kTorch, "Allocation on device {*} would exceed allowed memory. (out of memory)", 2000},
    {kDetail, kTorch, "Currently allocated : {allocated}"},
    {kDetail, kTorch, "Requested : {requested}"},
    {kDetail, kTorch, "Device limit : {total}"},
    {kDetail, kTorch, "Free (according to CUDA): {free}"},
    {kDetail, kTorch, "PyTorch limit (set by user-supplied memory fraction) : {limit}"},

    // PyTorch and the libraries.
    {kHandle, kTorch, "CUDA error: {status~} when calling `cublasCreate"},
    {kHandle, kTorch, "CUDA error: {status~} when calling `cublasLtCreate"},
    {kLaunch, kTorch, "CUDA error: {status~} when calling `"},
    {kHandle, kTorch, "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"},
    {kHandle, kTorch, "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"},
    {kWorkspace, kTorch, "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"},
    {kCrash, kTorch, "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"},
    {kCrash, kTorch, "cuDNN error: CUDNN_STATUS_MAPPING_ERROR"},
    {kHandle, kTorch, "cublas runtime error : resource allocation failed"},
    {kHandle, kTorch, "cublas runtime error : library not initialized"},
    {kLaunch, kTorch, "cublas runtime error : the GPU program failed to execute"},
    {kWorkspace, kTorch, "Unable to find a valid cuDNN algorithm"},
    {kWorkspace, kTorch, "GET was unable to find an engine to execute this computation"},

    // TensorFlow's pool. JAX prints the same, as both use XLA; the rest of the log says which of the two it
    // is.
    {kAllocation, kTensorflow, "ran out of memory trying to allocate {requested}"},
    {kAllocation, kTensorflow, "ran out of memory trying to allocate {requested} (rounded to {requested#})"},
    {kNotAFailure, kTensorflow, "ran out of memory trying to allocate {requested} with freed_by_count="},
    {kNotAFailure, kTensorflow,
     "ran out of memory trying to allocate {requested} (rounded to {requested#}) with freed_by_count="},
    {kPiece, kNone, "Sum Total of in-use chunks: {allocated}"},
    {kPiece, kNone, "Total bytes in pool: {reserved#} memory_limit_: {capacity#}"},
    {kPiece, kNone, "total_region_allocated_bytes_: {reserved#} memory_limit_: {capacity#}"},
    {kDetail, kNone, "Limit: {capacity#}"},
    {kDetail, kNone, "InUse: {allocated#}"},
    {kPiece, kNone, "LargestFreeBlock: {largest#}"},
    {kPiece, kNone, "Free at {*} of size {largest#}"},
    {kAllocation, kTensorflow, "OOM when allocating tensor with shape"},
    {kAllocation, kTensorflow, "OOM when allocating tensor with shape[{dims~}] and type {type~}"},
    {kHost, kTensorflow, "by allocator cpu"},
    {kHost, kTensorflow, "by allocator mklcpu"},
    {kHost, kTensorflow, "Allocator (cpu) ran out of memory"},
    {kHost, kTensorflow, "Allocator (mklcpu) ran out of memory"},
    {kAllocation, kTensorflow, "cuMemAllocAsync failed to allocate {requested#}"},
    {kDetail, kTensorflow, "Free memory/Total memory: {free#}/{total#}"},
    {kPoolShrunk, kTensorflow,
     "failed to allocate {*} ({requested#} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY"},
    {kBackground, kTensorflow, "Created TensorFlow device ({*} with {pool} memory)"},
    {kBackground, kTensorflow, "Created device {*} with {pool} memory:", 2005},
    {kBackground, kTensorflow, "totalMemory: {total} freeMemory: {start_free}"},
    {kBackground, kTensorflow, "deviceMemorySize: {total}", 2001},

    // TensorFlow, XLA and the libraries.
    {kHandle, kTensorflow, "failed to create cublas handle: "},
    {kHandle, kTensorflow, "failed to create cublas handle: {status~}"},
    {kHandle, kTensorflow, "Could not create cudnn handle: "},
    {kHandle, kTensorflow, "Could not create cudnn handle: {status~}"},
    {kHandle, kTensorflow, "could not create cudnn handle: {status~}"},
    {kHandle, kTensorflow, "cudnn library could not create a handle: {status~}"},
    {kLaunch, kTensorflow,
     "Failed to get convolution algorithm. This is probably because cuDNN failed to initialize"},
    {kLaunch, kTensorflow, "DNN library initialization failed"},
    {kLaunch, kTensorflow, "DNN library is not found"},
    {kLaunch, kTensorflow, "without BLAS support"},
    {kLaunch, kTensorflow, "Blas xGEMM launch failed"},
    {kLaunch, kTensorflow, "Blas GEMM launch failed"},
    {kLaunch, kTensorflow, "Blas SGEMM launch failed"},
    {kLaunch, kTensorflow, "Blas xGEMMBatched launch failed"},
    {kPiece, kNone, "Memory usage: {free#} bytes free, {total#} bytes total"},
    {kBrokenVersion, kNone, "Possibly insufficient driver version"},
    {kContext, kTensorflow, "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY"},
    {kDetail, kNone, "total memory reported: {total#}"},
    {kLateSetting, kTensorflow, "Physical devices cannot be modified after being initialized", 2000},
    {kLateSetting, kTensorflow, "Virtual devices cannot be modified after being initialized", 2000},
    {kLateSetting, kTensorflow, "Memory growth cannot differ between GPU devices", 2000},
    {kLateSetting, kTensorflow, "Cannot set memory growth on device when virtual devices configured", 2000},

    // JAX.
    {kAllocation, kJax, "Out of memory while trying to allocate {requested#} bytes"},
    {kAllocation, kJax, "Out of memory while trying to allocate {requested}"},
    {kAllocation, kJax, "Out of memory allocating {requested#} bytes"},
    {kAllocation, kJax, "Failed to allocate request for {requested}"},
    {kAllocation, kJax, "Failed to allocate request for {requested} ({requested#}"},
    {kAllocation, kJax, "Failed to allocate request for {requested} ({requested})"},

    // ONNX Runtime.
    {kAllocation, kOnnx, "Failed to allocate memory for requested buffer of size {requested#}"},
    {kLimit, kOnnx, "Available memory of {limit#} is smaller than requested bytes of {requested#}"},
    {kAllocation, kOnnx, "CUDA failure 2: out of memory"},
    {kAllocation, kOnnx, "CUDA failure 2: cudaErrorMemoryAllocation"},
    {kHandle, kOnnx, "CUBLAS failure {*}: CUBLAS_STATUS_ALLOC_FAILED"},
    {kHandle, kOnnx, "CUBLAS failure {*}: CUBLAS_STATUS_NOT_INITIALIZED"},
    {kHandle, kOnnx, "CUDNN failure {*}: CUDNN_STATUS_NOT_INITIALIZED"},
    {kHandle, kOnnx, "CUDNN failure {*}: CUDNN_STATUS_INTERNAL_ERROR"},
    {kWorkspace, kOnnx, "CUDNN failure {*}: CUDNN_STATUS_ALLOC_FAILED"},

    // RMM, MLX, Flashlight, ggml.
    {kAllocation, kOther, "RMM failure at:"},
    {kLimit, kOther, "Maximum pool size exceeded"},
    {kLimit, kOther, "Maximum pool size exceeded (failed to allocate {requested})"},
    {kLimit, kOther, "Exceeded memory limit (failed to allocate {requested})"},
    {kDetail, kOther, "current/max/try size = {reserved}, {limit}, {*}"},
    {kAllocation, kOther, "CUDA error (failed to allocate {requested}) at:"},
    {kAllocation, kOther, "std::bad_alloc: out_of_memory"},
    {kAllocation, kOther, "allocating {requested} on device {*}: cudaMalloc failed: out of memory"},
    {kAllocation, kOther, "[malloc] Unable to allocate {requested#} bytes"},
    {kAllocation, kOther,
     "Failed to allocate memory of size {requested} (Device: {*}, Capacity: {total}, "
     "Allocated: {allocated}, Cached: {idle}"},

    // Headroom's own, see runtime/base/errors.cpp, simulated_gpu.cpp and allocators/strategies/strategy.cpp.
    {kAllocation, kHeadroom, "out of memory: tried to allocate {requested}"},
    {kWorkspace, kHeadroom, "out of memory: tried to allocate {requested} for workspace"},
    {kPiece, kHeadroom,
     "strategy {strategy~}: {allocated} allocated, {reserved} reserved, largest free block {largest}"},
    {kDetail, kHeadroom, ", limit {limit}; device: "},
    {kDetail, kHeadroom, ", limit {process_limit} on the process; device: "},
    {kDetail, kHeadroom, ", limit {reserve_limit} to leave libraries room; device: "},
    {kDetail, kHeadroom, "; device: {total} total, {free} free, {others} held by others"},
    {kDetail, kHeadroom, "; {requested} requested; strategy "},
    {kLimit, kHeadroom, "limit of {limit} ({*} bytes) on the process leaves nothing for tensors"},
    {kContext, kHeadroom, "cuModuleLoadData failed: CUDA_ERROR_OUT_OF_MEMORY"},
    {kIndex, kHeadroom, " failed: out of range: "},

    // An index outside its table. The kernel prints it; then any later call fails with any message.
    {kIndex, kNone, "srcIndex < srcSelectDimSize"},
    {kIndex, kNone, "\"index out of bounds"},
    {kIndex, kNone, "index >= -sizes[i] && index < sizes[i]"},
    {kIndex, kNone, "idx_dim >= 0 && idx_dim < index_size"},
    {kIndex, kNone, "t >= 0 && t < n_classes"},
    {kIndex, kNone, "cur_target >= 0 && cur_target < n_classes"},
    {kIndex, kNone, "ind >= 0 && ind < ind_dim_size"},
    {kIndex, kNone, "IndexError: index out of range in self"},
    {kIndex, kTorch, "IndexError: Target {*} is out of bounds"},
    {kIndex, kTensorflow, "indices[{*}] = {*} is not in ["},
    {kAssert, kNone, "device-side assert triggered"},
    {kAssert, kNone, "cudaErrorAssert"},
    {kAssert, kNone, "CUDA_ERROR_ASSERT"},
    {kCrash, kNone, "an illegal memory access was encountered"},
    {kCrash, kNone, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {kCrash, kNone, "unspecified launch failure"},
    {kCrash, kNone, "CUDA error: misaligned address"},

    // Versions that do not match.
    {kVersion, kNone, "Loaded runtime CuDNN library: "},
    {kVersion, kNone, "cuDNN version incompatibility"},
    {kVersion, kNone, "CUDA driver version is insufficient for CUDA runtime version"},
    {kVersion, kNone, "The NVIDIA driver on your system is too old"},
    {kVersion, kNone, "no kernel image is available for execution"},
    {kVersion, kNone, "forward compatibility was attempted on non supported HW"},
    {kVersion, kNone, "Driver/library version mismatch"},
    {kVersion, kNone, "does not match DSO version"},
    {kVersion, kNone, "is not compatible with the current PyTorch installation"},
    {kVersion, kNone, "the provided PTX was compiled with an unsupported toolchain"},
    {kVersion, kNone, "undefined symbol: cublas"},
    {kVersion, kNone, "undefined symbol: cudnn"},
    {kVersion, kNone, "undefined symbol: __cudnn"},
    {kVersion, kNone, "CUDNN_STATUS_VERSION_MISMATCH"},
    {kVersion, kNone, "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"},
    {kVersion, kNone, "CUBLAS_STATUS_ARCH_MISMATCH"},
    {kVersion, kNone, "CUDNN_STATUS_ARCH_MISMATCH"},
    {kBrokenVersion, kNone, "Could not load dynamic library 'libcudnn"},
    {kBrokenVersion, kNone, "Could not load dynamic library 'libcublas"},

    // Access.
    {kPermission, kNone, "could not open the device file /dev/nvidia"},
    {kPermission, kNone, "Permission denied: '/dev/nvidia"},
    {kPermission, kNone, "/dev/nvidiactl: Permission denied"},
    {kPermission, kNone, ".nv/ComputeCache{*}Permission denied"},
    {kPermission, kNone, "Permission denied: '{*}/.nv"},
    {kPermission, kNone, "Permission denied{*}/.nv"},
    {kPermission, kNone, "Failed to initialize NVML: Insufficient Permissions"},
    {kPermission, kNone, "cudaErrorNotPermitted"},
    {kBusy, kNone, "all CUDA-capable devices are busy or unavailable"},
    {kBusy, kNone, "CUDA-capable device(s) is/are busy or unavailable"},
    {kBusy, kNone, "CUDA_ERROR_DEVICES_UNAVAILABLE"},

    // The machine's own memory.
    {kHost, kNone, "DefaultCPUAllocator: can't allocate memory"},
    {kHost, kNone, "DefaultCPUAllocator: not enough memory"},
    {kHost, kNone, "Out of memory: Killed process"},
    {kHost, kNone, "oom-kill:constraint="},
    {kHost, kNone, "Cannot allocate memory"},
    {kHost, kNone, "numpy.core._exceptions.MemoryError"},
    {kHost, kNone, "numpy.core._exceptions._ArrayMemoryError"},

    // Status names of the driver and the libraries, anywhere.
    {.kind = kAllocation, .framework = kNone, .pattern = "cudaErrorMemoryAllocation", .weak = true},
    {.kind = kAllocation, .framework = kNone, .pattern = "CUDA_ERROR_OUT_OF_MEMORY", .weak = true},
    {.kind = kHandle, .framework = kNone, .pattern = "CUBLAS_STATUS_NOT_INITIALIZED", .weak = true},
    {.kind = kHandle, .framework = kNone, .pattern = "CUDNN_STATUS_NOT_INITIALIZED", .weak = true},
    {.kind = kHandle, .framework = kNone, .pattern = "CUBLAS_STATUS_ALLOC_FAILED", .weak = true},
    {.kind = kWorkspace, .framework = kNone, .pattern = "CUDNN_STATUS_ALLOC_FAILED", .weak = true},

    // Which framework it is.
    {kMention, kTensorflow, "tensorflow/"},
    {kMention, kTensorflow, "tensorflow."},
    {kMention, kTensorflow, "import tensorflow"},
    {kMention, kTorch, "site-packages/torch/"},
    {kMention, kTorch, "torch.cuda."},
    {kMention, kTorch, "import torch"},
    {kMention, kJax, "jaxlib"},
    {kMention, kJax, "XlaRuntimeError"},
    {kMention, kJax, "site-packages/jax/"},
    {kMention, kJax, "import jax"},
    {kMention, kOnnx, "onnxruntime"},
    {kMention, kHeadroom, "library_failure: "},
    {kMention, kHeadroom, "out_of_memory: out of memory: "},
    {kMention, kHeadroom, "train_mnist: "},
    {kBackground, kTensorflow, "tensorflow=={version~}"},
    {kBackground, kTensorflow, "tensorflow-gpu=={version~}"},
    {kBackground, kTensorflow, "TensorFlow version: {version~}"},
    {kBackground, kTorch, "torch=={version~}"},
    {kBackground, kTorch, "PyTorch version: {version~}"},
    {kBackground, kNone, "File \"{script~}\", line {*}, in <module>"},
    {kBackground, kNone, "cublas may be due to OOM"},
    {kBackground, kNone, ":\\Users\\"},
};

constexpr Setting kSettings[] = {
    {"allow_growth", "TF_FORCE_GPU_ALLOW_GROWTH=true"},
    {"allow_growth", "'TF_FORCE_GPU_ALLOW_GROWTH': 'true'"},
    {"allow_growth",
     "Overriding allow_growth setting because the TF_FORCE_GPU_ALLOW_GROWTH environment variable is "
     "set. Original config value was 0"},
    {"allow_growth", "set_memory_growth({*}, True)"},
    {"allow_growth", "set_memory_growth({*}, enable=True)"},
    {"allow_growth", "allow_growth = True"},
    {"allow_growth", "allow_growth=True"},
    {"allow_growth", "allow_growth: true"},
    {"allow_growth", "--allow-growth"},
    {"cuda_malloc_async", "TF_GPU_ALLOCATOR=cuda_malloc_async"},
    {"cuda_malloc_async", "Using CUDA malloc Async allocator"},
    {"cuda_malloc_async", "backend:cudaMallocAsync"},
    {"expandable_segments", "expandable_segments:True"},
    {"expandable_segments", "expandable_segments: True"},
    {"expandable_segments", "expandable_segments=True"},
    {"max_split_size", "max_split_size_mb:"},
    {"no_preallocation", "XLA_PYTHON_CLIENT_PREALLOCATE=false"},
    {"no_preallocation", "XLA_PYTHON_CLIENT_PREALLOCATE\"] = \"false\""},
    {"no_preallocation", "XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'"},
    {"no_preallocation", "XLA_PYTHON_CLIENT_ALLOCATOR=platform"},
    {"memory_fraction", "XLA_PYTHON_CLIENT_MEM_FRACTION="},
    {"launch_blocking", "CUDA_LAUNCH_BLOCKING=1"},
    {"launch_blocking", "CUDA_LAUNCH_BLOCKING\"] = \"1\""},
    {"same_as_requested", "kSameAsRequested"},
    {"same_as_requested", "arena_extend_strategy: 1"},
    {"libraries_first", "--libraries-first"},
    {"packed_plan", "--plan packed"},
    {"packed_plan", "--plan=packed"},
};

// "try setting PYTORCH_CUDA_ALLOC_CONF=...", "the environment variable 'TF_GPU_ALLOCATOR=...' will improve",
// "For debugging consider passing CUDA_LAUNCH_BLOCKING=1", and Headroom's own "next: ...".
constexpr std::string_view kAdviceWords[] = {
    "try setting", "environment variable '", "consider ", "next: ", "you can set", "try to set"};

}  // namespace

std::span<const Message> messages() {
  static const std::vector<Message> all = [] {
    static std::vector<std::string> causes_with_colon;  // Message has a view of each
    for (const CauseInfo& row : causes()) causes_with_colon.push_back(std::string(row.name) + ": ");
    std::vector<Message> made(std::begin(kMessages), std::end(kMessages));
    for (const std::string& pattern : causes_with_colon) made.push_back({kStatedCause, kHeadroom, pattern});
    return made;
  }();
  return all;
}
std::span<const Setting> settings() {
  return kSettings;
}
std::span<const std::string_view> advice_words() {
  return kAdviceWords;
}

}  // namespace headroom::explain
