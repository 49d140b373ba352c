// The messages of servers, of programs that make images and text, of NCCL and of libraries that load models.
#include "tools/explain/message_tables.h"

namespace headroom::explain {
namespace {

using enum Kind;
using enum Framework;

constexpr Message kMessages[] = {
    // vLLM and its kin: a cache takes what weights and one step leave of a share of the device.
    {kCacheTooSmall, kVllm,
     "max seq len ({tokens#}) is larger than the maximum number of tokens that can be stored in KV cache "
     "({tokens_fit#})"},
    {kCacheTooSmall, kVllm,
     "max seq len ({tokens#}), ({cache_needed} KV cache is needed, which is larger than the available KV "
     "cache memory ({cache_free})"},
    {kCacheTooSmall, kVllm,
     "max seq len ({tokens#}), {cache_needed} KV cache is needed, which is larger than the available KV "
     "cache memory ({cache_free})"},
    {kDetail, kVllm, "the estimated maximum model length is {tokens_fit#}"},
    {kNoCache, kVllm, "No available memory for the cache blocks"},
    {kNoCache, kVllm, "the rest of the memory reserved for KV Cache is -{cache_short}"},
    {kBackground, kVllm,
     "can use total_gpu_memory ({total}) x gpu_memory_utilization ({share~}) = {process_limit}"},
    {kBackground, kVllm,
     "model weights take {weights}; non_torch_memory takes {*}; PyTorch activation peak memory takes "
     "{activations};"},
    {kBackground, kVllm,
     "total_gpu_memory={total} initial_memory_usage={*} kv_cache_size=-{cache_short} "
     "gpu_memory_utilization={share~}"},
    {kBackground, kVllm, "Available KV cache memory: -{cache_short}"},
    {kBackground, kVllm, "Model loading took {weights}"},
    {kBackground, kVllm, "Loading model weights took {weights}"},
    {kShareNotFree, kVllm,
     "Free memory on device ({free}/{total}) on startup is less than desired GPU memory utilization "
     "({share~}, {requested})"},
    {kShareNotFree, kVllm,
     "Free memory on device {*} ({free}/{total}) on startup is less than desired GPU memory utilization "
     "({share~}, {requested})"},
    {kShareNotFree, kVllm,
     "Free memory on device ({free#}/{total}) on startup is less than desired GPU memory utilization"},
    {kDisturbed, kVllm, "Error in memory profiling. Initial free memory "},
    {kHost, kVllm, "Too large swap space. {requested} out of the {free#} "},
    {kHost, kVllm, "Too large swap space"},
    {kAftermath, kVllm, "No available shared memory broadcast block found"},
    {kAftermath, kVllm, "Engine core initialization failed. See root cause above"},
    {kAftermath, kVllm, "Engine process failed to start"},
    {kDisturbed, kSglang, "The memory capacity is unbalanced"},
    {kNotAFailure, kSglang, "KV cache pool is full. Retract requests"},
    {kNotAFailure, kSglang, "Decode out of memory happened"},
    {kNoCache, kSglang, "Not enough memory. Please try to increase --mem-fraction-static"},
    {kNoCache, kSglang, "Not enough memory. Please try increase --mem-fraction-static"},
    {kAllocation, kSglang, "Prefill out of memory. Try to lower your batch size"},
    {kAllocation, kSglang, "Decode out of memory. Try to lower your batch size"},
    {kNoCache, kTgi, "Not enough memory to handle {*} prefill tokens"},
    {kNoCache, kTensorRtLlm, "Impossible to fit in any sequence in kvCache"},
    {kNoCache, kTensorRtLlm, "Can't allocate blocks for KV cache"},
    {kNoCache, kTensorRtLlm, "No enough memory for KV cache"},

    // llama.cpp and Ollama.
    {kAllocation, kLlamaCpp, "allocating {requested} on device {*}: cudaMalloc failed: out of memory"},
    {kAllocation, kLlamaCpp, "ggml_cuda_host_malloc: failed to allocate {requested} of pinned memory"},
    {kAllocation, kLlamaCpp, "ggml-cuda.cu{*}out of memory"},
    {kHost, kLlamaCpp,
     "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size {requested#}"},
    {kHost, kLlamaCpp, "failed to allocate CPU buffer of size {requested#}"},
    {kHost, kLlamaCpp, "unable to allocate CPU buffer"},
    {kAllocation, kLlamaCpp, "ggml_vulkan: Device memory allocation of size {requested#} failed"},
    {kAllocation, kLlamaCpp, "ggml_metal{*}failed to allocate buffer, size = {requested}"},
    {kAllocation, kLlamaCpp, "unable to allocate CUDA"},
    {kAllocation, kLlamaCpp, "unable to allocate backend buffer"},
    {kDetail, kLlamaCpp, "failed to allocate CUDA{*} buffer of size {requested#}"},
    {kAllocation, kLlamaCpp, "failed to allocate CUDA"},
    {kAllocation, kLlamaCpp, "failed to allocate compute buffers"},
    {kAllocation, kLlamaCpp, "failed to allocate buffer for kv cache"},
    {kRecovered, kLlamaCpp, "compute buffer allocation failed, retrying"},
    {kBackground, kLlamaCpp, "offloaded {layers#}/"},
    {kBackground, kLlamaCpp, "using device CUDA{*} - {start_free} free"},
    {kAllocation, kOllama, "llama runner process has terminated: cudaMalloc failed: out of memory"},
    {kAllocation, kOllama, "llama runner process has terminated: CUDA error: out of memory"},
    {kAllocation, kOllama, "llama runner process has terminated: CUDA error"},
    {kHost, kOllama, "model requires more system memory ({requested}) than is available ({free})"},
    {kHost, kOllama, "llama runner process has terminated: signal: killed"},

    // Programs that make images.
    {kAllocation, kComfy, "!!! Exception during processing !!! Allocation on device"},
    {kAllocation, kComfy, "!!! Exception during processing!!! Allocation on device"},
    {kAllocation, kComfy, "Exception Message: Allocation on device"},
    {kAllocation, kComfy, "Exception Message:** Allocation on device"},
    {kAllocation, kComfy, "torch.OutOfMemoryError: Allocation on device"},
    {kAllocation, kComfy, "torch.cuda.OutOfMemoryError: Allocation on device"},
    {kDetail, kComfy, "Got an OOM, unloading all loaded models"},
    {kNotAFailure, kComfy, "Ran out of memory when regular VAE decoding, retrying with tiled VAE decoding"},
    {kNotAFailure, kComfy, "Ran out of memory when regular VAE encoding, retrying with tiled VAE encoding"},

    // Programs that say themselves that a model does not fit.
    {kTooLargeModel, kNone, "Insufficient VRAM in split for model"},
    {kTooLargeModel, kNone, "Insufficient VRAM for model"},
    {kTooLargeModel, kNone, "Insufficient space in device allocation"},
    {kTooLargeModel, kNone, "Insufficient GPU memory error"},

    // Models in parts.
    {kDispatched, kTransformers, "Some modules are dispatched on the CPU or the disk"},
    {kDispatched, kTransformers, "Please provide an `offload_folder`"},
    {kDispatched, kTransformers, "had weights offloaded to the disk"},
    {kDispatched, kTransformers, "with CPU or disk offload. If you want train"},

    // NCCL.
    {kCollective, kNone, "NCCL WARN Cuda failure 'out of memory'"},
    {kCollective, kNone, "NCCL WARN Cuda failure 2 'out of memory'"},
    {kCollective, kNone, "NCCL WARN Cuda failure 2 \"out of memory\""},
    {kCollective, kNone, "NCCL WARN Cuda failure \"out of memory\""},
    {kCollective, kNone, "NCCL WARN Failed to CUDA calloc {*} bytes"},
    {kCollective, kNone, "Cuda failure 2 'out of memory'"},
    {kCollective, kNone, "Cuda failure 'out of memory'"},
    {kCollective, kNone, "Failed to CUDA calloc {requested#} bytes"},
    {kCollective, kNone, "Failed to CUDA calloc async {requested#} bytes"},
    {kBackground, kNone, "NCCL INFO {channels#} coll channels"},

    // Triton's server.
    {kNotAFailure, kTriton, "CNMEM_STATUS_OUT_OF_MEMORY, falling back to"},
    {kNotAFailure, kTriton, "Failed to allocate CUDA memory with byte size {*} falling back"},
    {kNotAFailure, kTriton, "failed to allocate pinned system memory"},
    {kAllocation, kTriton, "CNMEM_STATUS_OUT_OF_MEMORY"},
    {kSharedMemory, kTriton, "Failed to initialize Python stub: No space left on device"},
    {kSharedMemory, kTriton, "Unable to create shared memory region"},
    {kSharedMemory, kTriton, "Failed to increase the shared memory pool size"},

    // Runs that go on.
    {kRecovered, kNone, "attempting to recover from OOM"},
    {kRecovered, kNone, "AutoBatch: Using batch-size"},
    {kRecovered, kNone, "skipping batch"},
    {kRecovered, kNone, "Skipping batch"},
    {kRecovered, kNone, "skipping this batch"},
    {kRecovered, kNone, "Skipping this batch"},
    {kRecovered, kNone, "skip this batch"},
    {kRecovered, kNone, "falling back to CPU"},
    {kRecovered, kNone, "Falling back to CPU"},
    {kRecovered, kNone, "ran out of memory, skipping batch"},
    {kRecovered, kNone, "retrying with batch size"},
    {kRecovered, kNone, "failed, trying batch size"},
    {kRecovered, kNone, "Decreasing batch size to"},
    {kRecovered, kNone, "Reducing batch size to"},
    {kRecovered, kNone, "Trying again with non-parallel"},
    {kRecovered, kNone, "copy inputs to CPU due to CUDA OOM"},
    {kRecovered, kNone, "Retrying with"},
    {kRecovered, kNone, "retrying with"},
    {kRecovered, kNone, "halving batch"},
    {kRecovered, kNone, "Halving batch"},
    {kRecovered, kNone, "halving the batch"},
    {kRecovered, kNone, "Halving the batch"},
    {kRecovered, kNone, "reducing batch size"},
    {kRecovered, kNone, "Reducing batch size"},
    {kRecovered, kNone, "reducing the batch size"},
    {kRecovered, kNone, "batch size reduced to"},
    {kRecovered, kNone, "falling back to"},
    {kRecovered, kNone, "ecovered from OOM"},
    {.kind = kRecovered, .framework = kNone, .pattern = "retrying", .weak = true},
    {.kind = kRecovered, .framework = kNone, .pattern = "Retrying", .weak = true},
    {.kind = kRecovered, .framework = kNone, .pattern = "will retry", .weak = true},
    {.kind = kRecovered, .framework = kNone, .pattern = "trying again", .weak = true},
    {.kind = kRecovered, .framework = kNone, .pattern = "Trying again", .weak = true},
};

}  // namespace

std::span<const Message> server_messages() {
  return kMessages;
}

}  // namespace headroom::explain
