#include "kernels/cuda/library/algorithm_choice.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "base/errors.h"
#include "device/cuda/check.h"
#include "kernels/cuda/owned.h"

namespace headroom::cuda {
namespace {

// Five runs of a kernel of some microseconds are long compared to the clock's half microsecond; the best of
// three launches excludes disturbed ones. A kernel that is long by itself is timed alone.
constexpr int kTimedRuns = 5, kTimedLaunches = 3;
constexpr double kLongUs = 200;
// An algorithm whose first run takes this many times as long as the best one, and longer than queueing takes,
// is not timed again.
constexpr double kHopeless = 2, kQueueingUs = 50;
// Ends a search when nothing better has come in this time on the device: a depthwise convolution has a dozen
// algorithms that are a hundred times too slow, and timing each takes 20 to 90 ms. Time of the host does not
// count: a busy one, or a library that loads code, would leave the best algorithms out.
constexpr double kSearchPatienceUs = 60e3;
constexpr int64_t kAlignment = 256;

using Event = Owned<cudaEvent_t, cudaEventDestroy>;

Event make_event() {
  cudaEvent_t event = nullptr;
  HR_CHECK(cudaEventCreate(&event));
  return Event(event);
}

// Several runs of one algorithm as a graph, so that the time to queue them does not count.
template <typename F>
Owned<cudaGraphExec_t, cudaGraphExecDestroy> recorded(cudaStream_t stream, const F& run) {
  HR_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cudaGraph_t graph = nullptr;
  try {
    for (int i = 0; i < kTimedRuns; ++i) run();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  HR_CHECK(cudaStreamEndCapture(stream, &graph));
  const Owned<cudaGraph_t, cudaGraphDestroy> owned(graph);
  cudaGraphExec_t ready = nullptr;
  HR_CHECK(cudaGraphInstantiate(&ready, graph, 0));
  return Owned<cudaGraphExec_t, cudaGraphExecDestroy>(ready);
}

// Microseconds of one call of `work` on the device.
template <typename F>
double elapsed_us(cudaStream_t stream, const F& work) {
  const Event begin = make_event(), end = make_event();
  HR_CHECK(cudaEventRecord(begin.get(), stream));
  work();
  HR_CHECK(cudaEventRecord(end.get(), stream));
  HR_CHECK(cudaStreamSynchronize(stream));
  float ms = 0;
  HR_CHECK(cudaEventElapsedTime(&ms, begin.get(), end.get()));
  return 1e3 * static_cast<double>(ms);
}

// Returns the microseconds of one run on the device; measured roughly if that suffices to see that it is far
// above `best_us`. Adds all that it measured to `spent_us`.
template <typename F>
double time_us(cudaStream_t stream, double best_us, double& spent_us, const F& run) {
  const auto spend_us = [&](const auto& work) {
    const double us = elapsed_us(stream, work);
    spent_us += us;
    return us;
  };
  run();  // loads the algorithm's code, which must not happen while work is recorded
  // Some algorithms take a hundred times as long as the best, and would take most of the search.
  const double rough_us = spend_us(run);
  if (rough_us > kHopeless * best_us + kQueueingUs) return rough_us;
  if (rough_us > kLongUs) {
    double us = rough_us;
    for (int i = 1; i < kTimedLaunches; ++i) us = std::min(us, spend_us(run));
    return us;
  }
  const auto graph = recorded(stream, run);
  const auto launch = [&] { HR_CHECK(cudaGraphLaunch(graph.get(), stream)); };
  spend_us(launch);  // warms
  double us = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimedLaunches; ++i) us = std::min(us, spend_us(launch));
  return us / kTimedRuns;
}

int64_t aligned_operand_bytes(const AlgorithmSearch& search) {
  return (search.operand_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The candidates with no more workspace than that, which ran, with their times; none when the device has no
// room to run them in.
std::vector<AlgorithmChoice> timed(const AlgorithmSearch& search, int64_t limit_bytes,
                                   std::vector<AlgorithmCandidate> candidates) {
  std::erase_if(candidates, [&](const AlgorithmCandidate& candidate) {
    return candidate.choice.workspace_bytes > limit_bytes;
  });
  if (candidates.empty()) return {};
  int64_t workspace_bytes = 0;
  for (const AlgorithmCandidate& candidate : candidates)
    workspace_bytes = std::max(workspace_bytes, candidate.choice.workspace_bytes);
  const int64_t operand_bytes = aligned_operand_bytes(search);
  const auto bytes = static_cast<size_t>(operand_bytes + workspace_bytes + kAlignment);
  void* room = nullptr;
  if (cudaMalloc(&room, bytes) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  const Owned<void*, cudaFree> memory(room);
  HR_CHECK(cudaMemset(room, 0, bytes));
  cudaStream_t stream = nullptr;
  HR_CHECK(cudaStreamCreate(&stream));
  const Owned<cudaStream_t, cudaStreamDestroy> owned_stream(stream);
  auto* operands = static_cast<std::byte*>(room);
  double best_us = std::numeric_limits<double>::infinity();
  std::vector<AlgorithmChoice> choices;
  double spent_us = 0;  // since the last better one
  for (const AlgorithmCandidate& candidate : candidates) {
    if (spent_us > kSearchPatienceUs && !choices.empty()) break;
    try {
      AlgorithmChoice choice = candidate.choice;
      choice.time_us = time_us(stream, best_us, spent_us,
                               [&] { candidate.run(operands, operands + operand_bytes, stream); });
      if (choice.time_us < best_us) {
        best_us = choice.time_us;
        spent_us = 0;
      }
      choices.push_back(std::move(choice));
    } catch (const LibraryError&) {
      // Offered, but refused when it ran: the others are left.
    } catch (const DeviceError& error) {
      // The driver takes memory of its own for code and recordings: no room for more timing is no failure.
      if (error.status() != cudaGetErrorName(cudaErrorMemoryAllocation)) throw;
      cudaGetLastError();
      return choices;
    }
  }
  return choices;
}

// Everything of the machine that an algorithm and its time depend on.
std::string machine_of(const CudaGpu& device) {
  int driver = 0;
  HR_CHECK(cudaDriverGetVersion(&driver));
  return fmt::format("{}, driver {}, cuBLAS {}, cuDNN {}", device.description(), driver, cublasLtGetVersion(),
                     cudnnGetVersion());
}

}  // namespace

AlgorithmChoice choose_algorithm(const Request& request, const AlgorithmSearch& search) {
  const int64_t limit = request.settings.workspace_limit_bytes;
  const std::string path = algorithm_cache_path();
  const std::string problem = fmt::format("{}: {}", machine_of(request.device), search.problem);
  // Algorithms that there is no room to time are left for another run.
  const int64_t seen =
      std::min(limit, request.settings.timing_limit_bytes - aligned_operand_bytes(search) - kAlignment);
  bool is_refused = false;  // the library refused the cached choice
  // A search under a lower limit has not seen the algorithms that this one allows.
  if (const auto kept = kept_algorithms(path, problem); kept && kept->limit_bytes >= seen) {
    for (const AlgorithmChoice& choice : kept->choices) {
      if (choice.workspace_bytes > limit) continue;
      if (search.use(choice)) return choice;
      is_refused = true;
    }
  }
  // Times vary, and with them the algorithm and the last bits of its results, unless the choice is kept.
  const bool timing = !path.empty() || !request.settings.deterministic;
  const std::vector<AlgorithmCandidate> candidates =
      search.candidates(timing ? std::numeric_limits<size_t>::max() : 1);
  std::vector<AlgorithmChoice> choices;
  if (timing) {
    choices = pareto_front(timed(search, seen, candidates));
    const bool kept = keep_algorithms(path, problem, {seen, choices}, is_refused);
    if (!kept && request.settings.deterministic) choices.clear();
  }
  for (const AlgorithmCandidate& candidate : candidates) choices.push_back(candidate.choice);
  for (const AlgorithmChoice& choice : choices) {
    if (search.use(choice)) return choice;
  }
  throw LibraryError(fmt::format("no algorithm for {}", problem), "choose_algorithm", "NOT_SUPPORTED", {});
}

}  // namespace headroom::cuda
