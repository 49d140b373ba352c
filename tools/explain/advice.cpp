#include "tools/explain/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "runtime/base/bytes.h"

namespace headroom::explain {
namespace {

using enum Cause;
using F = Framework;

struct Row {
  Cause cause;
  Framework framework;       // kNone: any
  std::string_view unless;   // a setting that is on already makes the row useless
  std::string_view command;  // {run}: how the program is started, {script}: its file
  std::string_view why;
  int64_t from = 0;    // not for a version that is known to be older, as 1000 * major + minor
  int64_t before = 0;  // only for a version that is known to be older
  bool not_on_windows = false;
};

constexpr std::string_view kWhoHolds = "nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv";

constexpr std::string_view kStrategyOption = "--strategy ";

// In order of preference. Sources: the frameworks' documentation and the versions that introduced each
// setting.
constexpr Row kRows[] = {
    // TF_FORCE_GPU_ALLOW_GROWTH came with TensorFlow 1.14.
    {kPreallocation, F::kTensorflow, "allow_growth", "TF_FORCE_GPU_ALLOW_GROWTH=true {run}",
     "let the pool grow, so that libraries start while memory is left", 1014},
    {kPreallocation, F::kTensorflow, "allow_growth", "config.gpu_options.allow_growth = True",
     "let the pool grow, so that libraries start while memory is left", 0, 1014},
    {kPreallocation, F::kJax, "no_preallocation", "XLA_PYTHON_CLIENT_PREALLOCATE=false {run}",
     "let the pool grow instead of taking three quarters at the start"},
    {kPreallocation, F::kJax, "memory_fraction", "XLA_PYTHON_CLIENT_MEM_FRACTION=.50 {run}",
     "take a smaller share at the start"},
    {kPreallocation, F::kHeadroom, "libraries_first", "{run} --libraries-first",
     "start the libraries before the pool takes the rest"},
    {kPreallocation, F::kHeadroom, "allow_growth", "{run} --strategy allow-growth",
     "let the pool grow with demand"},
    {kPreallocation, F::kTorch, "allow_growth", "TF_FORCE_GPU_ALLOW_GROWTH=true {run}",
     "keep TensorFlow from taking the whole device"},
    {kPreallocation, F::kNone, "", kWhoHolds, "see how much each process holds"},
    {kPreallocation, F::kNone, "", "CUDA_VISIBLE_DEVICES=1 {run}",
     "use another device, if there is one with more room"},

    {kOtherProcess, F::kNone, "", kWhoHolds, "see who holds the memory, then end it or wait"},
    {kOtherProcess, F::kHeadroom, "", "headroom devices", "see which device has room"},
    {kOtherProcess, F::kNone, "", "CUDA_VISIBLE_DEVICES=1 {run}",
     "use another device, if there is one with room"},

    {kFragmentation, F::kTorch, "expandable_segments",
     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True {run}", "let the pool's pieces grow in place", 2001, 0,
     true},
    {kFragmentation, F::kTorch, "max_split_size", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 {run}",
     "keep large blocks from being split", 1010},
    {kFragmentation, F::kTensorflow, "cuda_malloc_async", "TF_GPU_ALLOCATOR=cuda_malloc_async {run}",
     "use the driver's pool, which maps pieces together", 2004},
    {kFragmentation, F::kJax, "no_preallocation", "XLA_PYTHON_CLIENT_ALLOCATOR=platform {run}",
     "free memory at once: slow, but it shows whether fragmentation is the cause"},
    {kFragmentation, F::kHeadroom, "", "{run} --strategy mapped",
     "map free pages together, so that fragmentation does not matter"},
    {kFragmentation, F::kHeadroom, "packed_plan", "{run} --plan packed",
     "give every value of a step a fixed address"},
    {kFragmentation, F::kNone, "", "{run}  # with a batch half as large",
     "smaller requests fit into the free blocks"},
    {kFragmentation, F::kTorch, "", "torch.cuda.empty_cache()  # between phases whose sizes differ",
     "return idle segments before the next phase"},
    {kFragmentation, F::kNone, "", "{run}  # with inputs padded to few sizes",
     "blocks of the same size are reused"},

    {kExhausted, F::kHeadroom, "packed_plan", "{run} --plan packed", "the plan that takes the least memory"},
    {kExhausted, F::kNone, "", "{run}  # with a batch half as large", "activations shrink with the batch"},
    {kExhausted, F::kTorch, "", "with torch.no_grad():  # around evaluation",
     "keep no activations where no gradient is needed"},
    {kExhausted, F::kOnnx, "same_as_requested",
     "arena_extend_strategy=kSameAsRequested  # a provider option of the session",
     "grow the arena by what is requested, not by doubling"},
    {kExhausted, F::kNone, "", kWhoHolds, "see whether something else holds memory, too"},

    {kLimit, F::kTorch, "", "torch.cuda.set_per_process_memory_fraction(1.0)",
     "raise or remove the fraction"},
    {kLimit, F::kTensorflow, "",
     "tf.config.LogicalDeviceConfiguration(memory_limit=MIB)  # a larger limit, or none",
     "raise or remove the limit", 2000},
    {kLimit, F::kTensorflow, "", "per_process_gpu_memory_fraction  # a larger share, or none",
     "raise or remove the limit"},
    {kLimit, F::kJax, "memory_fraction", "XLA_PYTHON_CLIENT_MEM_FRACTION=.90 {run}",
     "let the pool take more of the device"},
    {kLimit, F::kOnnx, "", "gpu_mem_limit  # a provider option of the session: a larger limit, or none",
     "raise or remove the limit"},
    {kLimit, F::kHeadroom, "", "{run}  # with a larger limit, or none", "raise or remove the limit"},
    {kLimit, F::kHeadroom, "packed_plan", "{run} --plan packed", "the plan that takes the least memory"},
    {kLimit, F::kOther, "", "maximum_pool_size  # of the pool: a larger limit, or none",
     "raise or remove the limit"},
    {kLimit, F::kNone, "", "{run}  # with a batch half as large", "stay below the limit"},
    {kLimit, F::kNone, "", kWhoHolds, "see how much of the device is free"},

    {kLibraryReserve, F::kHeadroom, "", "{run} --strategy mapped", "use pages that the pool leaves free"},
    {kLibraryReserve, F::kHeadroom, "packed_plan", "{run} --plan packed",
     "the plan that takes the least memory"},
    {kLibraryReserve, F::kNone, "", "{run}  # with a batch half as large",
     "stay below what the pool may hold"},
    {kLibraryReserve, F::kNone, "", kWhoHolds, "see how much of the device is free"},

    {kRounding, F::kHeadroom, "", "{run} --strategy stream-ordered", "rounds requests up by little"},
    {kRounding, F::kHeadroom, "packed_plan", "{run} --plan packed",
     "one allocation for all values of a step"},
    {kRounding, F::kNone, "", "{run}  # with a batch half as large", "smaller requests fit"},
    {kRounding, F::kNone, "", "{run}  # with a larger limit, or none", "leave room for rounding"},

    {kTooLargeForDevice, F::kNone, "", "{run}  # with a batch half as large, or gradient accumulation",
     "make this one tensor smaller than the device"},
    {kTooLargeForDevice, F::kNone, "", "headroom devices", "see which device is large enough"},

    {kWorkspace, F::kTorch, "", "torch.backends.cudnn.benchmark = False",
     "do not try algorithms with large workspaces"},
    {kWorkspace, F::kOnnx, "", "cudnn_conv_use_max_workspace=0  # a provider option of the session",
     "choose algorithms with small workspaces"},
    {kWorkspace, F::kTensorflow, "", "TF_CUDNN_WORKSPACE_LIMIT_IN_MB=64 {run}",
     "choose algorithms with small workspaces"},
    {kWorkspace, F::kHeadroom, "packed_plan", "{run} --plan packed",
     "let workspaces share memory with values"},
    {kWorkspace, F::kNone, "", "{run}  # with a batch half as large", "workspaces shrink with the batch"},
    {kWorkspace, F::kNone, "", kWhoHolds, "see how much memory is free"},

    {kHandleLeak, F::kNone, "", kWhoHolds, "watch whether the process grows from step to step"},
    {kHandleLeak, F::kNone, "", "cat /proc/PID/maps | grep -c -E 'libcu(blas|dnn)'",
     "look for a handle per thread, or a second framework in the process"},

    {kIndexOutOfRange, F::kHeadroom, "", "{run} --device cpu", "the CPU names the op and the index"},
    {kIndexOutOfRange, F::kNone, "launch_blocking", "CUDA_LAUNCH_BLOCKING=1 {run}",
     "the traceback then names the call"},
    {kIndexOutOfRange, F::kNone, "", "CUDA_VISIBLE_DEVICES= {run}",
     "run it on the CPU, which names the index"},
    {kIndexOutOfRange, F::kNone, "", "assert labels.min() >= 0 and labels.max() < classes",
     "check labels and tokens before they are used"},

    {kVersionMismatch, F::kNone, "", "nvidia-smi --query-gpu=driver_version,name --format=csv",
     "see driver and GPU"},
    {kVersionMismatch, F::kTorch, "", "python -m torch.utils.collect_env",
     "see what PyTorch was built for and what it loads"},
    {kVersionMismatch, F::kTensorflow, "",
     "python -c 'import tensorflow as tf; print(tf.sysconfig.get_build_info())'",
     "see what TensorFlow was built for", 2003},
    {kVersionMismatch, F::kNone, "", "ldconfig -p | grep -E 'libcu(dnn|blas|dart)'",
     "see which libraries are found first"},

    {kPermission, F::kNone, "", "ls -ld ~/.nv /dev/nvidia*", "see who owns them"},
    {kPermission, F::kNone, "", "sudo chown -R \"$USER\" ~/.nv", "take back a cache that root created"},

    {kSizeOverflow, F::kNone, "", "{run}  # print the shapes right before the failing call",
     "find the size that was computed wrongly"},
    {kSizeOverflow, F::kNone, "launch_blocking", "CUDA_LAUNCH_BLOCKING=1 {run}",
     "the traceback then names the call"},
    {kSizeOverflow, F::kNone, "", "{run}  # with one small input",
     "see whether the size follows from the data"},

    {kHostSpill, F::kNone, "", "{run}  # with a batch half as large",
     "fit into the device again: a spill costs most of its speed"},
    {kHostSpill, F::kNone, "",
     "NVIDIA Control Panel: CUDA - Sysmem Fallback Policy: Prefer No Sysmem Fallback",
     "fail when the device is full, instead of running slowly"},

    {kNotMemory, F::kNone, "launch_blocking", "CUDA_LAUNCH_BLOCKING=1 {run}",
     "see the first call that fails"},
    {kNotMemory, F::kNone, "", "nvidia-smi --query-gpu=driver_version,name,memory.free --format=csv",
     "see driver, GPU and what is free"},
    {kNotMemory, F::kNone, "", "ldconfig -p | grep -E 'libcu(dnn|blas|dart)'",
     "see which libraries are found first"},

    {kUnknown, F::kNone, "launch_blocking", "CUDA_LAUNCH_BLOCKING=1 {run} 2>&1 | headroom explain -",
     "make the first failure in the log the cause"},
    {kUnknown, F::kNone, "", kWhoHolds, "see whether the device is full when it fails"},
    {kUnknown, F::kNone, "", "nvidia-smi --query-gpu=driver_version,memory.used,memory.free --format=csv",
     "see driver and free memory"},
};

// For failures of the machine itself, which the rows above do not fit.
constexpr Row kHostRows[] = {
    {kNotMemory, F::kNone, "", "free -h", "see the machine's own memory"},
    {kNotMemory, F::kNone, "", "{run}  # with fewer loader workers and smaller queues",
     "hold less data in the machine"},
};
constexpr Row kSettingsRows[] = {
    {kNotMemory, F::kNone, "allow_growth", "TF_FORCE_GPU_ALLOW_GROWTH=true {run}",
     "the same setting, made in time and for all GPUs"},
    {kNotMemory, F::kNone, "",
     "for gpu in tf.config.list_physical_devices('GPU'): tf.config.experimental.set_memory_growth(gpu, True)",
     "make these the first lines of the program"},
    {kNotMemory, F::kNone, "", "python -X importtime {script}",
     "see what initialises the GPUs before the setting"},
};
constexpr Row kHarmlessRows[] = {
    {kNotMemory, F::kNone, "", "nvidia-smi --query-gpu=memory.used,memory.free --format=csv",
     "see how full the device is"},
    {kNotMemory, F::kNone, "", "{run}  # with a batch half as large",
     "leave algorithms more workspace, if speed matters"},
};

bool fits(const Row& row, const Case& found, Cause cause) {
  if (row.cause != cause) return false;
  if (row.framework != F::kNone && row.framework != found.framework) return false;
  if (!row.unless.empty() && found.has_setting(std::string(row.unless))) return false;
  if (row.not_on_windows && found.log->windows) return false;
  const size_t strategy = row.command.find(kStrategyOption);
  if (strategy != std::string_view::npos &&
      row.command.substr(strategy + kStrategyOption.size()) == found.strategy) {
    return false;
  }
  if (found.version() && *found.version() < row.from) return false;
  return row.before == 0 || (found.named_version() && *found.named_version() < row.before);
}

std::string filled(std::string_view text, const Case& found) {
  const std::string run = found.framework == F::kHeadroom ? "train_mnist"
                          : found.log->script.empty()     ? "python PROGRAM.py"
                                                          : "python " + found.log->script;
  std::string result(text);
  for (const auto& [name, value] :
       {std::pair<std::string_view, std::string>{"{run}", run},
        {"{script}", found.log->script.empty() ? "PROGRAM.py" : found.log->script}}) {
    for (size_t at; (at = result.find(name)) != std::string::npos;) result.replace(at, name.size(), value);
  }
  return result;
}

}  // namespace

std::array<Advice, 2> advise(const Case& found, Cause cause) {
  std::vector<const Row*> rows;
  const auto collect = [&](auto& list) {
    for (const Row& row : list) {
      const auto same = [&](const Row* other) { return other->command == row.command; };
      if (fits(row, found, cause) && std::none_of(rows.begin(), rows.end(), same)) rows.push_back(&row);
    }
  };
  if (cause == kNotMemory && found.is(Kind::kHost)) {
    collect(kHostRows);
  } else if (cause == kNotMemory && found.is(Kind::kLateSetting)) {
    collect(kSettingsRows);
  } else if (cause == kNotMemory && found.is(Kind::kNotAFailure)) {
    collect(kHarmlessRows);
  } else {
    collect(kRows);
  }
  if (rows.size() < 2) std::abort();  // too few rows for any framework and setting; a test counts them
  return {Advice{filled(rows[0]->command, found), std::string(rows[0]->why)},
          Advice{filled(rows[1]->command, found), std::string(rows[1]->why)}};
}

}  // namespace headroom::explain
