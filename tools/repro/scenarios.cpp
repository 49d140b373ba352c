#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "runtime/core/bytes.h"
#include "runtime/core/errors.h"
#include "runtime/core/suggest.h"
#include "tools/repro/runs.h"

namespace headroom {
namespace {

// The figures are those that were reported of the machines, not of a run of ours.
constexpr auto kSim = CheckedOn::kSimulated;

constexpr std::string_view kOwnDemand =
    "the process is context, libraries and a pool that grows with demand, and the net here demands less of "
    "it "
    "than TensorFlow's, whose convolutions chose among algorithms with large workspaces";

// A: 431 = 1455 - 1024 is what context, handles and kernels take on the laptop.
constexpr Expected kA1[] = {
    {"outcome", "library_failure"},
    {"cublas_line", "failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED", kSim},
    {"cublas_lines", 4},
    {"next_line", "attempting to perform BLAS operation using StreamExecutor without BLAS support"},
    {"message",
     "InternalError:  Blas xGEMM launch failed : a.shape=[1,64,576], b.shape=[1,576,64], m=64, n=64, k=576",
     kSim},
};
constexpr Expected kA2[] = {
    {"outcome", "ok"},
    {"overhead_bytes", 431 * kMiB, kSim},
    {"process_bytes", 697 * kMiB, kSim, kOwnDemand},
    {"device_bytes", 1026 * kMiB, kSim, kOwnDemand},
};
constexpr Expected kA3[] = {
    {"outcome", "ok"},
    {"overhead_bytes", 431 * kMiB, kSim},
    {"reserved_bytes", 1024 * kMiB},
    {"process_bytes", 1455 * kMiB, kSim},
    {"device_bytes", 1784 * kMiB, kSim},
};
// 1242 = 2002 - 329 - 431.
constexpr Expected kA4[] = {
    {"high_limit", "library_failure"},
    {"limit_of_1242_mib", "ok", kSim},
    {"low_limit", "ok"},
};
constexpr Expected kA5[] = {{"outcome", "out_of_memory"}, {"all_at_once", "ok"}};
constexpr Expected kA6[] = {{"grows", "yes"}, {"outcome", "ok"}};
constexpr Expected kA7[] = {
    {"outcome", "refused"},
    {"message", "memory growth must be set before /device:GPU:0 is initialised", kSim},
};
constexpr Expected kWorks[] = {{"outcome", "ok"}};

// B
constexpr Expected kB2[] = {
    {"outcome", "library_failure"},
    {"message",
     "failed initializing StreamExecutor for CUDA device ordinal 2: Internal: failed call to "
     "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory; total memory reported: 11554717696",
     kSim},
    {"listed", 2, kSim},
};
constexpr Expected kB2Cured[] = {{"outcome", "ok"}, {"listed", 4, kSim}};
// 4621887078 = 0.4 x 11554717696, in blocks of 256 bytes.
constexpr Expected kB4[] = {
    {"pool_bytes", int64_t{4'621'886'976}, kSim},
    {"percent_of_device", 40},
    {"pool_at_start_with_growth_bytes", 0},
    {"beyond_the_fraction", "out_of_memory"},
};

// C: the context holds 446, a small tensor takes a segment of 2.
constexpr Expected kC1[] = {{"process_bytes", 448 * kMiB, kSim}, {"above_context_bytes", 2 * kMiB}};
constexpr Expected kC2[] = {{"process_bytes", 1362 * kMiB, kSim}, {"above_context_bytes", 916 * kMiB}};
constexpr Expected kC3[] = {{"process_bytes", 1364 * kMiB, kSim}, {"above_context_bytes", 918 * kMiB}};
constexpr Expected kC4[] = {{"process_bytes", 3422 * kMiB, kSim}, {"above_context_bytes", 2976 * kMiB}};
constexpr Expected kC4Cured[] = {{"process_bytes", 2506 * kMiB, kSim}, {"above_context_bytes", 2060 * kMiB}};
constexpr Expected kC5[] = {
    {"outcome", "out_of_memory"},
    {"tensors_kept", 5, kSim},
    {"message",
     "CUDA out of memory. Tried to allocate 916.00 MiB (GPU 0; 6.00 GiB total capacity; 4.47 GiB already "
     "allocated; 186.44 MiB free; 4.47 GiB reserved in total by PyTorch)",
     kSim},
};
constexpr Expected kC6[] = {
    {"outcome", "ok"}, {"process_bytes", 2278 * kMiB, kSim}, {"above_context_bytes", 1832 * kMiB}};
constexpr Expected kC7[] = {
    {"process_after_dropping_bytes", 3422 * kMiB, kSim},
    {"process_bytes", 446 * kMiB, kSim},
    {"above_context_bytes", 0},
};
// 47 x 100 of the 4766.44 that are free.
constexpr Expected kC8[] = {{"outcome", "out_of_memory"}, {"tensors_kept", 47, kSim}};
constexpr Expected kC8Cured[] = {{"outcome", "ok"}, {"above_context_bytes", 300 * kMiB}};
constexpr Expected kC9[] = {{"training", "out_of_memory"}, {"beside_the_cache", "out_of_memory"}};
constexpr Expected kC9Cured[] = {
    {"half_the_batch", "ok"},
    {"evaluation_without_gradients", "ok"},
    {"references_dropped", "ok"},
    {"beside_the_cache_emptied", "ok"},
};

// D: times are of the simulated GPU's clock, which only moves when somebody waits.
constexpr Expected kD3[] = {
    {"host_goes_on_at_us", 0},
    {"work_is_done_then", "no"},
    {"synchronize_returns_at_us", 1000},
    {"work_is_done_at_the_end", "yes"},
};
constexpr Expected kD4[] = {{"read_at_us", 10}, {"written_by_then", "no"}};
constexpr Expected kD4Cured[] = {{"read_at_us", 1010}, {"written_by_then", "yes"}};
// What is left of 916 MiB beside 960,000,000 bytes is too short to be cut off, and counts as allocated: 4.47
// GiB in the message of C5 is 5 x 916.
constexpr Expected kD5[] = {
    {"memory_allocated_bytes", 916 * kMiB},    {"memory_reserved_bytes", 916 * kMiB},
    {"allocated_after_del_bytes", 0},          {"reserved_after_del_bytes", 916 * kMiB},
    {"reserved_after_empty_cache_bytes", 0},   {"max_memory_allocated_bytes", 916 * kMiB},
    {"max_memory_reserved_bytes", 916 * kMiB},
};
constexpr Expected kD7[] = {
    {"on_the_cpu", "ok"}, {"on_the_gpu", "ok"}, {"losses_agree", "yes"}, {"weights", "the same bits", kSim}};

constexpr Scenario kScenarios[] = {
    {"A1", "TensorFlow's default takes all", kA1,
     "A conv net on a laptop's GPU of 2002 MiB: the pool leaves 225, cuDNN takes its part, and cuBLAS, whose "
     "handle is made at the first dense layer, finds too little.",
     "let the pool grow with demand: --strategy allow-growth", kWorks, run_a1},
    {"A2",
     "Memory growth trains",
     kA2,
     "The same net on the same laptop, with a pool that grows with demand.",
     "",
     {},
     run_a2},
    {"A3",
     "A limit of 1024 MiB trains",
     kA3,
     "The same, with a pool of 1024 MiB taken at once: 431 more are context, libraries and kernels.",
     "",
     {},
     run_a3},
    {"A4", "A limit set too high fails, too", kA4,
     "2002 less the desktop's 329 less 431 for context and libraries leaves 1242 for a pool; one of 1244 "
     "fails as "
     "A1 does, a low one trains.",
     "a limit that leaves the libraries room: --strategy hard-limit --limit 1GiB", kWorks, run_a4},
    {"A5", "Why growth is not the default", kA5,
     "55 MiB, given back, 10 and again 55 in a pool of 100: one that grew in pieces has no piece left that "
     "is "
     "long enough, one taken at once has.",
     "grow by pages that can be moved: --strategy mapped", kWorks, run_a5},
    {"A6",
     "TF_FORCE_GPU_ALLOW_GROWTH=true",
     kA6,
     "The variable of the environment turns A1's failure into a run, without a change of the program.",
     "",
     {},
     run_a6},
    {"A7", "Growth that is set too late", kA7,
     "Memory growth is asked for when the GPU is initialised already: TensorFlow's RuntimeError.",
     "set it before the first use of the device", kWorks, run_a7},
    {"B2", "A listing that initialises full GPUs", kB2,
     "Others hold GPUs 2 and 3 of four 2080 Ti; a listing that makes a context on each dies at the third.",
     "list without a context: headroom devices", kB2Cured, run_b2},
    {"B4",
     "A fraction of 0.4, and growth",
     kB4,
     "per_process_gpu_memory_fraction = 0.4 takes that share at once; with allow_growth it is taken as "
     "needed, "
     "and remains the most.",
     "",
     {},
     run_b4},
    {"C1",
     "A small tensor shows 448 MiB",
     kC1,
     "PyTorch on a card of 6 GB: whatever is small takes a segment of 2 MiB beside the context.",
     "",
     {},
     run_c1},
    {"C2",
     "A large tensor takes a segment",
     kC2,
     "randn(200, 300, 200, 20) of float32 takes 916 MiB.",
     "",
     {},
     run_c2},
    {"C3", "A small tensor in its place", kC3,
     "Then x = randn(200, 300): the 916 MiB stay in the cache, and a segment of 2 MiB comes.",
     "torch.cuda.empty_cache() gives idle segments back", kC1, run_c3},
    {"C4", "A larger tensor in its place", kC4,
     "Instead x = randn(300, 300, 300, 20): 2060 MiB that the cached 916 cannot serve.",
     "del x and torch.cuda.empty_cache() before the larger one is made", kC4Cured, run_c4},
    {"C5", "Code A: six tensors kept", kC5,
     "Six tensors of 916 MiB in variables of their own: the sixth is out of memory.",
     "code B, one variable: drop what is no longer needed", kC6, run_c5},
    {"C6",
     "Code B: one variable, six times",
     kC6,
     "The new tensor is made before the old one goes, then the two blocks take turns.",
     "",
     {},
     run_c6},
    {"C7",
     "empty_cache, and the base that stays",
     kC7,
     "All tensors are dropped, then the cache is emptied: the context remains.",
     "",
     {},
     run_c7},
    {"C8", "A list that keeps growing", kC8,
     "Losses are appended with all that hangs on them, 100 MiB a step, until the card is full.",
     "keep the last two, or numbers in place of tensors: loss.item()", kC8Cured, run_c8},
    {"C9", "The fixes that are named", kC9,
     "A batch of 256 in a pool of 64 MiB, and a neighbour that wants 4 GiB beside 916 MiB of idle cache.",
     "a smaller batch; no_grad for evaluation; dropping references; empty_cache", kC9Cured, run_c9, kSim},
    {"D3",
     "Work is queued, the host goes on",
     kD3,
     "1000 us of work are queued: the call returns at once, and only synchronize waits.",
     "",
     {},
     run_d3,
     kSim},
    {"D4", "A stream reads what is not written yet", kD4,
     "A second stream reads after 10 us what the first has written after 1000.",
     "wait_stream: the reader waits for the writer", kD4Cured, run_d4, kSim},
    {"D5",
     "Allocated, reserved, empty_cache",
     kD5,
     "memory_allocated, memory_reserved and their peaks around one tensor, del and empty_cache.",
     "",
     {},
     run_d5},
    {"D7",
     "One program for CPU and GPU",
     kD7,
     "The same training on both, chosen by a flag.",
     "",
     {},
     run_d7},
};

}  // namespace

std::span<const Scenario> scenarios() {
  return kScenarios;
}

const Scenario& find_scenario(std::string_view id) {
  std::string upper(id);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::vector<std::string_view> known;
  for (const Scenario& scenario : kScenarios) {
    if (scenario.id == upper) return scenario;
    known.push_back(scenario.id);
  }
  throw InvalidArgument(
      fmt::format("unknown scenario '{}'; known: {}", id, list_with_suggestion(upper, known)));
}

}  // namespace headroom
