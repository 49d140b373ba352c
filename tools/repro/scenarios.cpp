#include <fmt/format.h>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/text.h"
#include "tools/repro/runs.h"

namespace headroom::repro {
namespace {

// Sizes and messages of A1 to A3, B2 and C1 to C7 were reported of the machines; the others follow from these
// figures, or from the rules of the allocator in question. None was taken from a run of ours.
constexpr auto kSim = CheckedOn::kSimulated;

constexpr std::string_view kOwnDemand =
    "our own convolutions run on the CPU, without workspaces, so the pool stays smaller";

// A: 431 = 1455 - 1024 is the memory of context, handles and kernels on the laptop.
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
    {"parameters", 93'322},
    {"outcome", "ok"},
    {"overhead_bytes", 431 * kMiB, kSim},
    {"reserved_bytes", 266 * kMiB, kSim},
    {"process_bytes", 697 * kMiB, kSim},
    {"device_bytes", 1026 * kMiB, kSim},
    {"process_with_workspaces_of_130_mib_bytes", 697 * kMiB, kSim},
    {"process_with_workspaces_of_224_mib_bytes", 697 * kMiB, kSim},
    {"our_reserved_bytes", 266 * kMiB, kSim, kOwnDemand},
    {"our_process_bytes", 697 * kMiB, kSim, kOwnDemand},
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
    {"limit_of_1244_mib", "library_failure", kSim},
    {"limit_of_1242_mib", "ok", kSim},
    {"low_limit", "ok"},
};
constexpr Expected kA5[] = {{"outcome", "out_of_memory"}, {"all_at_once", "ok"}};
constexpr Expected kA6[] = {{"grows", "yes"}, {"outcome", "ok"}};
constexpr Expected kA7[] = {
    {"outcome", "refused"},
    {"message", "memory growth must be set before /device:GPU:0 is initialized", kSim},
};
constexpr Expected kA8[] = {
    {"outcome", "refused"},
    {"message", "Memory growth cannot differ between GPU devices"},
};
constexpr Expected kA9[] = {
    {"counts", "1 Physical GPU, 2 Logical GPUs"},
    {"beyond_the_first", "out_of_memory"},
    {"second_beside_it", "ok"},
};
constexpr Expected kA10[] = {
    {"counts", "1 Physical GPU, 2 Logical GPUs"},
    {"outcome", "ok"},
    {"images_per_gpu", 32},
    {"weights_of_all", "the same bits"},
    {"losses_of_one_gpu", "yes"},
};
constexpr Expected kA11[] = {
    {"limit_of_the_working_set", "ok"},
    {"limit_of_a_mib_less", "out_of_memory"},
    {"driver_calls_at_either_limit", "the same"},
    {"planned_for_6_mib_less", "ok"},
    {"it_takes", "longer"},
    {"planned_for_less_than_its_least", "out_of_memory"},
};
// 100 MiB take a region of 128, the double of 2 that is large enough. The small tensor is cut from it.
constexpr Expected kA12[] = {
    {"with_a_large_tensor_bytes", 128 * kMiB},
    {"without_it_bytes", 128 * kMiB},
    {"with_a_small_one_bytes", 128 * kMiB},
    {"and_idle_memory_given_back_bytes", 128 * kMiB},
    {"without_either_bytes", 0},
};
// Pages of 2 MiB.
constexpr Expected kA12Cured[] = {
    {"with_a_large_tensor_bytes", 100 * kMiB},
    {"without_it_bytes", 100 * kMiB},
    {"with_a_small_one_bytes", 100 * kMiB},
    {"and_idle_memory_given_back_bytes", 2 * kMiB},
    {"without_either_bytes", 0},
};
constexpr Expected kWorks[] = {{"outcome", "ok"}};
constexpr std::span<const Expected> kNothing;

// B
constexpr Expected kB1[] = {
    {"mapping_0", "/device:GPU:0 -> device: 1"},
    {"mapping_1", "/device:GPU:1 -> device: 2"},
    {"outcome", "refused"},
    {"message", "no device /device:GPU:2"},
};
constexpr Expected kB5[] = {
    {"first_of_two_split", "2 Physical GPU, 3 Logical GPUs"},
    {"first_of_four_visible", "4 Physical GPUs, 1 Logical GPU"},
};
constexpr Expected kB2[] = {
    {"outcome", "library_failure"},
    {"message",
     "failed initializing StreamExecutor for CUDA device ordinal 2: Internal: failed call to "
     "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory; total memory reported: 11554717696",
     kSim},
    {"listed", 2, kSim},
};
constexpr Expected kB2Cured[] = {{"outcome", "ok"}, {"listed", 4, kSim}};
constexpr Expected kB3[] = {
    {"a", "a: (variable): /job:localhost/replica:0/task:0/device:CPU:0"},
    {"product", "matmul: (matmul): /job:localhost/replica:0/task:0/device:GPU:1"},
    {"value", "2"},
    {"outcome", "refused"},
    {"message",
     "Cannot assign a device for operation matmul: matmul was explicitly assigned to /device:GPU:5 but "
     "available devices are "},
};
constexpr Expected kB3Cured[] = {
    {"a", "a: (variable): /job:localhost/replica:0/task:0/device:CPU:0"},
    {"product", "matmul: (matmul): /job:localhost/replica:0/task:0/device:GPU:0"},
    {"value", "2"},
    {"outcome", "ok"},
};
// 4621887078 = 0.4 x 11554717696, in blocks of 256 bytes.
constexpr Expected kB4[] = {
    {"pool_bytes", int64_t{4'621'886'976}, kSim},
    {"percent_of_device", 40},
    {"pool_at_start_with_growth_bytes", 0},
    {"beyond_the_fraction", "out_of_memory"},
};

constexpr Expected kB6[] = {{"intra_op_threads", 2},
                            {"inter_op_threads", 3},
                            {"chosen_for_0", "one or more"},
                            {"of_the_variable", 5},
                            {"weights", "the same bits"}};
constexpr Expected kB7[] = {
    {"is_available", "yes"},
    {"is_initialized", "no"},
    {"device_count", 4},
    {"current_device", 0},
    {"current_after_set_device", 1},
    {"count_after_set_device", 4},
    {"device_name", "GeForce RTX 2080 Ti"},
    {"device_capability", "7.5"},
    {"is_initialized_after_use", "yes"},
    {"count_with_one_visible", 1},
    {"outcome", "refused"},
    {"message", "CUDA error: invalid device ordinal"},
};
constexpr Expected kB7Cured[] = {{"count_with_one_visible", 1}, {"outcome", "ok"}};

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
    {"after_dropping_two_bytes", 3422 * kMiB, kSim},
    {"process_bytes", 446 * kMiB, kSim},
    {"above_context_bytes", 0},
    {"after_six_in_turn_bytes", 2278 * kMiB, kSim},
    {"a_small_tensor_left_bytes", 448 * kMiB, kSim},
    {"above_context_with_it_bytes", 2 * kMiB},
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

constexpr Expected kC10[] = {
    {"idle_bytes", 916 * kMiB},          {"first_call_gives_back_bytes", 916 * kMiB},
    {"second_call_gives_back_bytes", 0}, {"idle_beside_a_live_tensor_bytes", 12 * kMiB},
    {"any_call_gives_back_bytes", 0},
};
// 2 x 916 idle are more than 60 % of 3000 MiB.
constexpr Expected kC11[] = {{"idle_bytes", 1832 * kMiB}, {"above_context_bytes", 2932 * kMiB}};
constexpr Expected kC11Cured[] = {{"idle_bytes", 0}, {"above_context_bytes", 1100 * kMiB}};

// D: times are of the simulated GPU's clock, which moves only when the host waits.
constexpr Expected kD1[] = {
    {"in_the_guard", "/device:GPU:1"},
    {"in_the_guard_inside", "/device:GPU:2"},
    {"after_the_guard", "/device:GPU:0"},
    {"y_times_y", "/device:GPU:1"},
    {"outcome", "refused"},
    {"message",
     "Expected all tensors to be on the same device, but found at least two devices, /device:GPU:0 and "
     "/device:GPU:1"},
};
constexpr Expected kD1Cured[] = {
    {"in_the_guard", "/device:GPU:1"},    {"in_the_guard_inside", "/device:GPU:2"},
    {"after_the_guard", "/device:GPU:0"}, {"y_times_y", "/device:GPU:1"},
    {"x_plus_y", "2 on /device:GPU:1"},   {"outcome", "ok"},
};
constexpr Expected kD3[] = {
    {"host_goes_on_at_us", 0},
    {"work_is_done_then", "no"},
    {"synchronize_returns_at_us", 1000},
    {"work_is_done_at_the_end", "yes"},
};
constexpr Expected kD2[] = {{"call_returns_at_us", 0}, {"failure_comes_out_at", "synchronize"}};
constexpr Expected kD2Cured[] = {{"call_returns_at_us", 1000},
                                 {"failure_comes_out_at", "the call that failed"}};
constexpr Expected kD4[] = {{"read_at_us", 10},
                            {"written_by_then", "no"},
                            {"value_read", 0},
                            {"check_streams_finds", "a missing wait"}};
constexpr Expected kD4Cured[] = {
    {"read_at_us", 1010}, {"written_by_then", "yes"}, {"value_read", 1}, {"check_streams_finds", "nothing"}};
// 8 x (1000 + 1000), and 1000 + 8 x 1000.
constexpr Expected kD6[] = {{"eight_steps_end_at_us", 16000}, {"weights_with_a_loader", "the same bits"}};
constexpr Expected kD6Cured[] = {{"eight_steps_end_at_us", 9000}, {"weights_with_a_loader", "the same bits"}};
// The rest of 916 MiB after 960,000,000 bytes is too short to be split off, and counts as allocated: 4.47 GiB
// in the message of C5 is 5 x 916.
constexpr Expected kD5[] = {
    {"memory_allocated_bytes", 916 * kMiB},    {"memory_reserved_bytes", 916 * kMiB},
    {"allocated_after_del_bytes", 0},          {"reserved_after_del_bytes", 916 * kMiB},
    {"reserved_after_empty_cache_bytes", 0},   {"max_memory_allocated_bytes", 916 * kMiB},
    {"max_memory_reserved_bytes", 916 * kMiB},
};
constexpr Expected kD7[] = {
    {"on_the_cpu", "ok"}, {"on_the_gpu", "ok"}, {"losses_agree", "yes"}, {"weights", "the same bits", kSim}};
constexpr Expected kD8[] = {
    {"outcome", "ok"},
    {"images_per_gpu", 16},
    {"weights_of_all", "the same bits"},
    {"losses_of_one_gpu", "yes"},
};

constexpr Scenario kScenarios[] = {
    {"A1", "TensorFlow's default takes all",
     "A conv net on a laptop's GPU of 2002 MiB: the pool leaves 225, cuDNN uses part of it, and too little "
     "is left for cuBLAS, whose handle is made at the first dense layer.",
     kA1, run_a1, "let the pool grow with demand: --strategy allow-growth", kWorks},
    {"A2", "Memory growth trains",
     "The same net on the same laptop, with a pool that grows with demand: regions of 2, 8 and 256 MiB, the "
     "last one "
     "for a workspace of a convolution.",
     kA2, run_a2},
    {"A3", "A limit of 1024 MiB trains",
     "The same net with a pool of 1024 MiB reserved at once: context, libraries and kernels add 431.", kA3,
     run_a3},
    {"A4", "A limit set too high also fails",
     "2002 minus the desktop's 329 minus 431 for context and libraries leaves 1242 for a pool: with a limit "
     "of 1300 the handle fails as in A1, with 1244 the last kernels do not fit, and a low limit trains.",
     kA4, run_a4, "a limit that leaves room for the libraries: --strategy hard-limit --limit 1GiB", kWorks},
    {"A5", "Why growth is not the default",
     "A pool of 100 MiB allocates 55, frees them, allocates 10 and then 55 again: a pool that grew in pieces "
     "has no piece that is long enough, one reserved at once has.",
     kA5, run_a5, "grow by pages that can be mapped elsewhere: --strategy mapped", kWorks},
    {"A6", "TF_FORCE_GPU_ALLOW_GROWTH=true",
     "The environment variable makes A1 train, without a change to the program.", kA6, run_a6},
    {"A7", "Growth that is set too late",
     "Memory growth is set after the GPU was initialized. TensorFlow's RuntimeError is \"Physical devices "
     "cannot be modified after being initialized\"; ours names the device, and the line that initialized it.",
     kA7, run_a7, "set it before the first use of the device", kWorks},
    {"A8", "Growth that differs between GPUs",
     "Memory growth is set for the first of four GPUs only: TensorFlow's ValueError.", kA8, run_a8,
     "set it for all visible GPUs", kWorks, kSim},
    {"A9", "Two logical devices on one GPU",
     "Two of 1024 MiB on one physical GPU, a card of 11 GB, each with its own pool.", kA9, run_a9, "",
     kNothing, kSim},
    {"A10", "A net mirrored on logical devices",
     "MirroredStrategy over two logical devices of one GPU: each trains on half of a batch of 64, and "
     "gradients are summed before the weights change.",
     kA10, run_a10, "", kNothing, kSim},
    {"A11", "A smaller limit, until it fails",
     "The same net with ever smaller limits: a pool trains at the same speed down to its working set, and "
     "fails below "
     "it; a step that is planned for the limit takes longer instead, down to a least limit of its own.",
     kA11, run_a11, "", kNothing, kSim},
    {"A12", "Growth gives nothing back",
     "A tensor of 100 MiB in a growing pool is replaced by one of 1 MiB. The pool keeps all of its region, "
     "and still "
     "does when it is asked to give back what is idle: the small tensor lies in it.",
     kA12, run_a12,
     "grow by pages that go back one by one: --strategy mapped; in TensorFlow, a child process for "
     "each model",
     kA12Cured},
    {"B1", "Visible devices are renumbered",
     "CUDA_VISIBLE_DEVICES=1,2 of four: they become /device:GPU:0 and /device:GPU:1, and /gpu:2 is an error.",
     kB1, run_b1, "the names of the mapping: physical GPU 2 is /GPU:1", kWorks, kSim},
    {"B2", "Listing initializes full GPUs",
     "Others hold GPUs 2 and 3 of four 2080 Ti; listing them makes a context on each, and fails at the "
     "third.",
     kB2, run_b2, "list without a context: headroom devices", kB2Cured},
    {"B3", "Ops and tensors are placed by name",
     "TensorFlow's guide: two matrices on the CPU, their product on a GPU, every placement logged; then a "
     "missing GPU.",
     kB3, run_b3, "allow_soft_placement: an op whose device does not exist runs on another", kB3Cured, kSim},
    {"B4", "A fraction of 0.4, and growth",
     "per_process_gpu_memory_fraction = 0.4 reserves that share at once; with allow_growth it is reserved on "
     "demand, and stays the maximum.",
     kB4, run_b4},
    {"B5", "Physical and logical devices are counted",
     "Two visible, the first split in two: a GPU that is split is replaced by its parts, so there are 3 and "
     "not 2 + "
     "2; and only the first of four visible.",
     kB5, run_b5, "", kNothing, kSim},
    {"B6", "Threads within and between ops",
     "intra_op_parallelism_threads = 2, the threads of one op, and inter_op_parallelism_threads = 3, the ops "
     "at once; "
     "0 chooses, and TensorFlow's variables of the environment choose for it.",
     kB6, run_b6, "", kNothing, kSim},
    {"B7", "PyTorch's questions about devices",
     "device_count, current_device, set_device, names and capabilities of four GPUs; set_device hides none. "
     "With only the second visible, device 1 is an invalid ordinal.",
     kB7, run_b7, "the names of the mapping: the only visible GPU is /GPU:0", kB7Cured, kSim},
    {"C1", "A small tensor shows 448 MiB",
     "PyTorch on a card of 6 GB: a small tensor takes a segment of 2 MiB, beside the context.", kC1, run_c1},
    {"C2", "A large tensor takes a segment", "randn(200, 300, 200, 20) of float32 takes 916 MiB.", kC2,
     run_c2},
    {"C3", "A small tensor in its place",
     "Then x = randn(200, 300): the 916 MiB stay in the cache, and a segment of 2 MiB is added.", kC3, run_c3,
     "torch.cuda.empty_cache() gives idle segments back", kC1},
    {"C4", "A larger tensor in its place",
     "Instead x = randn(300, 300, 300, 20): 2060 MiB that the cached 916 cannot serve.", kC4, run_c4,
     "del x and torch.cuda.empty_cache() before the larger one is made", kC4Cured},
    {"C5", "Code A: six tensors kept",
     "Six tensors of 916 MiB in variables of their own: the sixth is out of memory.", kC5, run_c5,
     "code B, one variable: drop what is no longer needed", kC6},
    {"C6", "Code B: one variable, six times",
     "Each new tensor is made before the old one is freed, so two blocks take turns.", kC6, run_c6},
    {"C7", "empty_cache, and what remains",
     "The tensors of C4 are dropped and the cache is emptied: the context remains. After the six of C6, x is "
     "a small "
     "tensor: its segment of 2 MiB remains too.",
     kC7, run_c7},
    {"C8", "A list that keeps growing",
     "Each loss is appended with its graph, 100 MiB a step, until the card is full.", kC8, run_c8,
     "keep the last two, or numbers instead of tensors: loss.item()", kC8Cured},
    {"C9", "The usual fixes",
     "A batch of 256 in a pool of 64 MiB, and a neighbor that wants 4 GiB next to 916 MiB of idle cache.",
     kC9, run_c9, "a smaller batch; no_grad for evaluation; dropping references; empty_cache", kC9Cured,
     kSim},
    {"C10", "empty_cache, called again",
     "One call gives back all that can go back. A segment in which a tensor lives stays, however often it is "
     "called.",
     kC10, run_c10},
    {"C11", "Garbage collection at a threshold",
     "Two tensors of 916 MiB are freed, more than 60 % of a limit of 3000 MiB, and one of 1100 is made: "
     "PyTorch "
     "gives nothing back before a request fails, unless a threshold is set.",
     kC11, run_c11, "garbage_collection_threshold:0.6 in PYTORCH_CUDA_ALLOC_CONF", kC11Cured},
    {"D1", "A device guard, and operands on two devices",
     "Two tensors, one made in a guard of the second GPU: an op on both is an error, in PyTorch's words, "
     "unless one is copied.",
     kD1, run_d1, "copy the operand: to_device(x, \"/GPU:1\"), PyTorch's x.to(\"cuda:1\")", kD1Cured, kSim},
    {"D2", "Asynchronous by default",
     "1000 us of work, then work that fails: both calls return at once, and the failure shows up at the next "
     "wait.",
     kD2, run_d2, "CUDA_LAUNCH_BLOCKING=1: each call waits for its work", kD2Cured, kSim},
    {"D3", "Work is queued, the host continues",
     "1000 us of work are queued: the call returns at once, and only synchronize waits.", kD3, run_d3, "",
     kNothing, kSim},
    {"D4", "A stream reads before the other has written",
     "A second stream reads after 10 us what the first writes after 1000, and gets the old value.", kD4,
     run_d4, "wait_stream: the reader waits for the writer; --check-streams finds where one is missing",
     kD4Cured, kSim},
    {"D5", "Allocated, reserved, empty_cache",
     "memory_allocated, memory_reserved and their peaks around one tensor, del and empty_cache.", kD5,
     run_d5},
    {"D6", "Work waits for copies",
     "Eight batches are copied from pageable memory, 1000 us each, and processed, 1000 us each, in sequence.",
     kD6, run_d6, "pinned memory, non_blocking copies on a separate stream, and a loader with pinned batches",
     kD6Cured, kSim},
    {"D7", "One program for CPU and GPU", "The same training on both, chosen by a flag.", kD7, run_d7},
    {"D8", "DataParallel over several GPUs", "Four GPUs share a batch of 64; the result is that of one GPU.",
     kD8, run_d8, "", kNothing, kSim},
};

}  // namespace

std::span<const Scenario> scenarios() {
  return kScenarios;
}

const Scenario& find_scenario(std::string_view id) {
  std::vector<std::string_view> known;
  for (const Scenario& scenario : kScenarios) {
    if (lowered(scenario.id) == lowered(id)) return scenario;
    known.push_back(scenario.id);
  }
  throw InvalidArgument(fmt::format("unknown scenario '{}'; known: {}", id, list_with_suggestion(id, known)));
}

}  // namespace headroom::repro
