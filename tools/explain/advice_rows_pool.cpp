#include "tools/explain/advice_rows.h"

namespace headroom::explain {
namespace {

using enum Cause;
using enum When;
using F = Framework;

constexpr std::string_view kReport = "headroom report snapshot.pickle";

// Where there is memory, but not for this request, and where memory fills up. Sources of all settings: the
// frameworks' documentation, and the versions that introduced them.
constexpr Row kRowsOfPool[] = {
    // TF_FORCE_GPU_ALLOW_GROWTH came with TensorFlow 1.14.
    {kPreallocation,
     F::kTensorflow,
     "allow_growth",
     "TF_FORCE_GPU_ALLOW_GROWTH=true {run}",
     "let the pool grow, so that libraries start while memory is left",
     {.from = 1014}},
    {kPreallocation,
     F::kTensorflow,
     "allow_growth",
     "config.gpu_options.allow_growth = True",
     "let the pool grow, so that libraries start while memory is left",
     {.before = 1014}},
    {kPreallocation, F::kJax, "no_preallocation", "XLA_PYTHON_CLIENT_PREALLOCATE=false {run}",
     "let the pool grow instead of taking three quarters at the start"},
    {kPreallocation, F::kJax, "memory_fraction", "XLA_PYTHON_CLIENT_MEM_FRACTION=.50 {run}",
     "take a smaller share at the start"},
    {kPreallocation, F::kHeadroom, "libraries_first", "{set --libraries-first}",
     "start the libraries before the pool takes the rest"},
    {kPreallocation, F::kHeadroom, "allow_growth", "{set --strategy allow-growth}",
     "let the pool grow with demand"},
    {kPreallocation, F::kTorch, "allow_growth", "TF_FORCE_GPU_ALLOW_GROWTH=true {run}",
     "keep TensorFlow from taking the whole device"},
    {kPreallocation, F::kNone, "", kWhoHolds, "see how much each process holds"},
    {kPreallocation, F::kNone, "", "CUDA_VISIBLE_DEVICES=1 {run}",
     "use another device, if there is one with more room"},

    // A server's share.
    {kOtherProcess,
     F::kVllm,
     "",
     "{set --gpu-memory-utilization $share}",
     "a share that fits what was free",
     {.kind = Kind::kShareNotFree, .when = kCommand}},
    {kOtherProcess,
     F::kVllm,
     "",
     "gpu_memory_utilization=$share  # an argument of LLM(...)",
     "a share that fits what was free",
     {.kind = Kind::kShareNotFree, .when = kScript}},

    {kOtherProcess, F::kNone, "", kWhoHolds, "see who holds the memory, then end it or wait"},
    {kOtherProcess, F::kHeadroom, "", "headroom devices", "see which device has room"},
    {kOtherProcess, F::kNone, "", "CUDA_VISIBLE_DEVICES=1 {run}",
     "use another device, if there is one with room"},

    {kFragmentation, F::kWebui, "medvram", "{set --medvram}",
     "keep one part of the model on the GPU at a time"},
    {kFragmentation, F::kWebui, "lowvram", "{set --lowvram}", "less memory still, and slow"},
    {kFragmentation, F::kComfy, "lowvram", "{set --lowvram}",
     "keep parts of the model in the machine's memory"},
    {kFragmentation, F::kFooocus, "lowvram", "{set --always-low-vram}",
     "keep parts of the model in the machine's memory"},
    {kFragmentation,
     F::kTorch,
     "expandable_segments",
     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True {run}",
     "let the pool's pieces grow in place",
     {.from = 2001, .not_on_windows = true}},
    {kFragmentation,
     F::kTorch,
     "max_split_size",
     "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 {run}",
     "keep large blocks from being split",
     {.from = 1010}},
    {kFragmentation,
     F::kTensorflow,
     "cuda_malloc_async",
     "TF_GPU_ALLOCATOR=cuda_malloc_async {run}",
     "use the driver's pool, which maps pieces together",
     {.from = 2004}},
    {kFragmentation, F::kJax, "no_preallocation", "XLA_PYTHON_CLIENT_ALLOCATOR=platform {run}",
     "free memory at once: slow, but it shows whether fragmentation is the cause"},
    {kFragmentation, F::kHeadroom, "", "{set --strategy mapped}",
     "map free pages together, so that fragmentation does not matter"},
    {kFragmentation, F::kHeadroom, "packed_plan", "{set --plan packed}",
     "give every value of a step a fixed address"},
    {kFragmentation, F::kNone, "", "{half}", "smaller requests fit into the free blocks"},
    {kFragmentation, F::kTorch, "", "torch.cuda.empty_cache()  # between phases whose sizes differ",
     "return idle segments before the next phase"},
    {kFragmentation, F::kNone, "", "{run}  # with inputs padded to few sizes",
     "blocks of the same size are reused"},

    {kLimit, F::kTorch, "", "torch.cuda.set_per_process_memory_fraction($fraction)",
     "raise the fraction to what is needed, or remove it"},
    {kLimit, F::kTorch, "", "torch.cuda.set_per_process_memory_fraction(1.0)",
     "raise or remove the fraction"},
    {kLimit, F::kJax, "", "XLA_PYTHON_CLIENT_MEM_FRACTION=.90 {run}", "let the pool take more of the device"},
    {kLimit, F::kCupy, "", "CUPY_GPU_MEMORY_LIMIT=90% {run}  # or mempool.set_limit",
     "raise or remove the limit"},
    {kLimit, F::kRapids, "", "maximum_pool_size  # of the pool: a larger limit, or none",
     "raise or remove the limit"},
    {kLimit,
     F::kTensorflow,
     "",
     "tf.config.LogicalDeviceConfiguration(memory_limit=MIB)  # a larger limit, or none",
     "raise or remove the limit",
     {.from = 2000}},
    {kLimit, F::kTensorflow, "", "per_process_gpu_memory_fraction  # a larger share, or none",
     "raise or remove the limit"},
    {kLimit, F::kOnnx, "", "gpu_mem_limit  # a provider option of the session: a larger limit, or none",
     "raise or remove the limit"},
    {kLimit, F::kHeadroom, "", "{run}  # with a larger limit, or none", "raise or remove the limit"},
    {kLimit, F::kHeadroom, "packed_plan", "{set --plan packed}",
     "one arena with planned offsets: no gaps between values"},
    {kLimit, F::kNone, "", "{half}", "stay below the limit"},
    {kLimit, F::kNone, "", kWhoHolds, "see how much of the device is free"},

    {kLibraryReserve, F::kHeadroom, "", "{set --strategy mapped}", "use pages that the pool leaves free"},
    {kLibraryReserve, F::kHeadroom, "packed_plan", "{set --plan packed}",
     "one arena with planned offsets: no gaps between values"},
    {kLibraryReserve, F::kNone, "", "{half}", "stay below what the pool may hold"},
    {kLibraryReserve, F::kNone, "", kWhoHolds, "see how much of the device is free"},

    {kRounding, F::kHeadroom, "", "{set --strategy stream-ordered}", "rounds requests up by little"},
    {kRounding, F::kHeadroom, "packed_plan", "{set --plan packed}",
     "one allocation for all values of a step"},
    {kRounding, F::kNone, "", "{half}", "smaller requests fit"},
    {kRounding, F::kNone, "", "{run}  # with a larger limit, or none", "leave room for rounding"},

    {kTooLargeForDevice, F::kNone, "", "{half}", "make this one tensor smaller than the device"},
    {kTooLargeForDevice, F::kNone, "", "headroom devices", "see which device is large enough"},

    // llama.cpp's compute buffers.
    {kWorkspace, F::kLlamaCpp, "", "{set -ub|--ubatch-size 256}",
     "smaller micro-batches need smaller compute buffers"},
    {kWorkspace, F::kLlamaCpp, "flash_attention", "{set -fa on}",
     "flash attention keeps no scores, which grow with the context"},
    {kWorkspace, F::kLlamaCpp, "", "{set -c|--ctx-size $context}", "a smaller context needs smaller buffers"},
    {kWorkspace, F::kLlamaCpp, "", "{set -ngl|--n-gpu-layers|--gpu-layers $layers}",
     "fewer layers leave room for the buffers"},
    {kWorkspace, F::kOllama, "", "/set parameter num_batch 256",
     "smaller micro-batches need smaller compute buffers (llama.cpp's -ub)"},
    {kWorkspace, F::kOllama, "", "/set parameter num_ctx 2048",
     "a smaller context needs smaller buffers (llama.cpp's -c)"},

    {kWorkspace, F::kTorch, "", "torch.backends.cudnn.benchmark = False",
     "do not try algorithms with large workspaces"},
    {kWorkspace, F::kOnnx, "", "cudnn_conv_use_max_workspace=0  # a provider option of the session",
     "choose algorithms with small workspaces"},
    {kWorkspace, F::kTensorflow, "", "TF_CUDNN_WORKSPACE_LIMIT_IN_MB=64 {run}",
     "choose algorithms with small workspaces"},
    {kWorkspace, F::kHeadroom, "packed_plan", "{set --plan packed}",
     "let workspaces share memory with values"},
    {kWorkspace, F::kNone, "", "{half}", "workspaces shrink with the batch"},
    {kWorkspace, F::kNone, "", kWhoHolds, "see how much memory is free"},

    {kHandleLeak, F::kNone, "", kWhoHolds, "watch whether the process grows from step to step"},
    {kHandleLeak, F::kNone, "", "cat /proc/PID/maps | grep -c -E 'libcu(blas|dnn)'",
     "look for a handle per thread, or a second framework in the process"},

    {kSizeOverflow, F::kNone, "", "{run}  # print the shapes right before the failing call",
     "find the size that was computed wrongly"},
    {kSizeOverflow, F::kNone, "launch_blocking", "CUDA_LAUNCH_BLOCKING=1 {run}",
     "the traceback then names the call"},
    {kSizeOverflow, F::kNone, "", "{run}  # with one small input",
     "see whether the size follows from the data"},

    {kHostSpill, F::kNone, "", "{half}", "fit into the device again: a spill costs most of its speed"},
    {kHostSpill, F::kNone, "",
     "NVIDIA Control Panel: CUDA - Sysmem Fallback Policy: Prefer No Sysmem Fallback",
     "fail when the device is full, instead of running slowly"},

    // NCCL.
    {kCollectiveBuffers, F::kNone, "", "NCCL_BUFFSIZE=1048576 NCCL_MAX_NCHANNELS=8 {run}",
     "a quarter of the bytes for each channel, and fewer channels"},
    {kCollectiveBuffers, F::kVllm, "", "{set --gpu-memory-utilization 0.85}",
     "leave room beside the server's share"},
    {kCollectiveBuffers, F::kTorch, "",
     "torch.cuda.set_per_process_memory_fraction(0.9)  # before the first allocation",
     "leave room beside the pool for NCCL's buffers"},
    {kCollectiveBuffers, F::kNone, "", "{half}", "leave room beside activations"},
    {kCollectiveBuffers, F::kNone, "", kWhoHolds, "see what else is on the device"},

    // Memory that grows.
    {kLeak, F::kTorch, "", "total_loss += loss.item()  # not loss; .detach() what is kept between steps",
     "what is kept of a step holds its whole graph"},
    {kLeak, F::kTorch, "",
     "torch.cuda.memory._record_memory_history()  # then _dump_snapshot, and headroom report SNAPSHOT",
     "see which line's blocks pile up"},
    {kLeak, F::kNone, "", "{run}  # for 10 and for 20 steps, with what it holds printed",
     "find what is kept from step to step"},
    {kLeak, F::kNone, "", "headroom diff EARLY.trace LATE.trace", "see what grew between two recordings"},

    // What a snapshot shows.
    {kGraphsKept, F::kNone, "", "with torch.no_grad():  # around evaluation", "keep no graphs for backward"},
    {kGraphsKept, F::kNone, "", kReport, "see which line allocates what stays"},
    {kLossesKept, F::kNone, "", "total += loss.item()  # not the tensor", "add up numbers, not their graphs"},
    {kLossesKept, F::kNone, "", kReport, "see which line allocates what stays"},
    {kGrowingBatch, F::kNone, "", "{run}  # with the batch of the first steps",
     "activations grow with the batch"},
    {kGrowingBatch, F::kNone, "", kReport, "compare the steps"},
    {kGradientsKept, F::kNone, "", "optimizer.zero_grad(set_to_none=True)", "free gradients before forward"},
    {kGradientsKept, F::kNone, "", kReport, "see when gradients are freed"},
    {kOptimizerState, F::kNone, "", "{run}  # with SGD, Adafactor or 8-bit Adam", "they keep less state"},
    {kOptimizerState, F::kNone, "", kReport, "see what the optimizer allocates"},
};

}  // namespace

std::span<const Row> rows_of_pool() {
  return kRowsOfPool;
}

}  // namespace headroom::explain
