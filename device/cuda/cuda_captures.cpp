#include "device/cuda/cuda_captures.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "device/cuda/check.h"
#include "device/cuda/cuda_gpu.h"
#include "device/cuda/cuda_streams.h"
#include "device/cuda/current_device.h"

namespace headroom::cuda {
namespace {

struct Destroy {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroy>;
using OwnedStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy>;

// One that does not wait for the default stream: capturing would be refused.
OwnedStream new_stream() {
  cudaStream_t stream = nullptr;
  HR_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return OwnedStream(stream);
}

// CUDA 13 dropped the old versions of two calls, and the new ones' suffixes.
#if CUDART_VERSION >= 13000
constexpr auto* get_capture_info = &cudaStreamGetCaptureInfo;
constexpr auto* set_dependencies = &cudaStreamUpdateCaptureDependencies;
#else
constexpr auto* get_capture_info = &cudaStreamGetCaptureInfo_v3;
constexpr auto* set_dependencies = &cudaStreamUpdateCaptureDependencies_v2;
#endif

// The last nodes of a task: tasks that wait for it wait for them.
using Ends = std::vector<cudaGraphNode_t>;

// Makes later work on `later` begin after the present work of `earlier`.
void order_streams(int gpu_of_earlier, cudaStream_t earlier, int gpu_of_later, cudaStream_t later) {
  std::optional<CudaEvent> reached;
  {
    const CurrentDevice current(gpu_of_earlier);
    reached.emplace(earlier);
  }
  const CurrentDevice current(gpu_of_later);
  reached->make_wait(later);
}

// Captures all tasks at once, on one stream of each GPU, which is set back to the dependencies of each task.
// One capture per task would suffice for kernels, but NCCL's calls in one graph must be in one capture: NCCL
// orders them by a stream of its own, which joins the capture at its first call.
class StreamCapture {
 public:
  // The first GPU's stream begins the capture; those of the others are drawn into it.
  explicit StreamCapture(std::span<const int> gpus) {
    for (const int gpu : gpus) {
      const CurrentDevice current(gpu);
      streams_.push_back(new_stream());
    }
    // Other threads may go on calling the driver as they like.
    HR_CHECK(cudaStreamBeginCapture(first(), cudaStreamCaptureModeThreadLocal));
    is_capturing_ = true;
    try {
      for (size_t i = 1; i < gpus.size(); ++i) order_streams(gpus[0], first(), gpus[i], streams_[i].get());
    } catch (...) {
      discard();
      throw;
    }
  }
  ~StreamCapture() { discard(); }
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;

  cudaStream_t first() const { return streams_.front().get(); }

  // Queues the task on the stream of that GPU after `after`. A task that queues nothing only passes on its
  // dependencies.
  Ends add(const Task& task, size_t gpu, Ends& after) {
    // Between GPUs no kernel can start early.
    const bool may_start_early = task.starts_early && streams_.size() == 1;
    std::vector<cudaGraphEdgeData> edges(after.size());
    for (size_t i = 0; i < after.size() && may_start_early; ++i) {
      cudaGraphNodeType type{};
      HR_CHECK(cudaGraphNodeGetType(after[i], &type));
      if (type != cudaGraphNodeTypeKernel) continue;
      edges[i].from_port = cudaGraphKernelNodePortProgrammatic;
      edges[i].type = cudaGraphDependencyTypeProgrammatic;
    }
    const cudaStream_t stream = streams_[gpu].get();
    HR_CHECK(
        set_dependencies(stream, after.data(), edges.data(), after.size(), cudaStreamSetCaptureDependencies));
    task.run(Stream{stream});

    cudaStreamCaptureStatus status{};
    const cudaGraphNode_t* nodes = nullptr;
    const cudaGraphEdgeData* unused = nullptr;  // a query that could not give it would fail
    size_t count = 0;
    HR_CHECK(get_capture_info(stream, &status, nullptr, nullptr, &nodes, &unused, &count));
    return Ends(nodes, nodes + count);
  }

  Graph end(std::span<const int> gpus) {
    for (size_t i = 1; i < gpus.size(); ++i) order_streams(gpus[i], streams_[i].get(), gpus[0], first());
    cudaGraph_t graph = nullptr;
    is_capturing_ = false;
    HR_CHECK(cudaStreamEndCapture(first(), &graph));
    return Graph(graph);
  }

 private:
  void discard() noexcept {
    cudaGraph_t graph = nullptr;
    if (is_capturing_ && cudaStreamEndCapture(first(), &graph) == cudaSuccess) cudaGraphDestroy(graph);
    is_capturing_ = false;
    cudaGetLastError();  // errors during capture have been thrown
  }

  std::vector<OwnedStream> streams_;  // by position of the GPU
  bool is_capturing_ = false;
};

// The GPUs of the tasks, that of the capture first, and for each task the position of its own.
struct TaskGpus {
  std::vector<int> ordinals;
  std::vector<size_t> of_task;
};

TaskGpus gpus_of(std::span<const Task> tasks, const CudaGpu& gpu) {
  TaskGpus gpus{{gpu.ordinal()}, {}};
  for (const Task& task : tasks) {
    const CudaGpu* const own = task.device == nullptr ? &gpu : task.device->kernel_target().gpu;
    if (own == nullptr) throw InvalidArgument("a CUDA graph holds no work of " + task.device->name());
    const auto found = std::find(gpus.ordinals.begin(), gpus.ordinals.end(), own->ordinal());
    gpus.of_task.push_back(static_cast<size_t>(found - gpus.ordinals.begin()));
    if (found == gpus.ordinals.end()) gpus.ordinals.push_back(own->ordinal());
  }
  return gpus;
}

class CudaGraphCapture final : public Capture {
 public:
  CudaGraphCapture(std::span<const Task> tasks, int64_t repeats, const CudaGpu& gpu);
  ~CudaGraphCapture() override { cudaGraphExecDestroy(graph_); }
  CudaGraphCapture(const CudaGraphCapture&) = delete;
  CudaGraphCapture& operator=(const CudaGraphCapture&) = delete;

  void launch(Stream stream) override;

 private:
  std::vector<int> gpus_;  // the first one launches
  cudaGraphExec_t graph_ = nullptr;
};

CudaGraphCapture::CudaGraphCapture(std::span<const Task> tasks, int64_t repeats, const CudaGpu& gpu) {
  check_tasks(tasks, repeats);
  TaskGpus gpus = gpus_of(tasks, gpu);
  gpus_ = std::move(gpus.ordinals);
  StreamCapture capture(gpus_);
  std::vector<Ends> previous, current(tasks.size());
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    for (size_t i = 0; i < tasks.size(); ++i) {
      Ends after;
      const auto wait_for = [&](const Ends& ends) {
        for (cudaGraphNode_t node : ends) {
          if (std::find(after.begin(), after.end(), node) == after.end()) after.push_back(node);
        }
      };
      for (int other : tasks[i].after) wait_for(current[static_cast<size_t>(other)]);
      if (repeat > 0) {
        for (int other : tasks[i].after_previous) wait_for(previous[static_cast<size_t>(other)]);
      }
      const CurrentDevice on(gpus_[gpus.of_task[i]]);
      current[i] = capture.add(tasks[i], gpus.of_task[i], after);
    }
    previous = current;
  }
  const Graph graph = capture.end(gpus_);
  HR_CHECK(cudaGraphInstantiate(&graph_, graph.get(), 0));
  try {
    // Otherwise the first launch would do it.
    HR_CHECK(cudaGraphUpload(graph_, capture.first()));
    HR_CHECK(cudaStreamSynchronize(capture.first()));
  } catch (...) {
    cudaGraphExecDestroy(graph_);
    throw;
  }
}

// A graph is ordered only with the stream that it is launched on.
void CudaGraphCapture::launch(Stream stream) {
  const CurrentDevice current(gpus_[0]);
  for (size_t i = 1; i < gpus_.size(); ++i) order_streams(gpus_[i], nullptr, gpus_[0], stream_of(stream));
  HR_CHECK(cudaGraphLaunch(graph_, stream_of(stream)));
  for (size_t i = 1; i < gpus_.size(); ++i) order_streams(gpus_[0], stream_of(stream), gpus_[i], nullptr);
}

}  // namespace

std::unique_ptr<Capture> CudaCaptures::capture(std::span<const Task> tasks, int64_t repeats) {
  gpu_.initialize();
  return std::make_unique<CudaGraphCapture>(tasks, repeats, gpu_);
}

}  // namespace headroom::cuda
