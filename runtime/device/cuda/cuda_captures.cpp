#include "runtime/device/cuda/cuda_captures.h"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/cuda_gpu.h"

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

// All tasks are captured in one go, on one stream that is set back to what each task waits for. A capture for
// each task would do for kernels, but NCCL's calls in one graph have to be in one capture: NCCL orders them
// by a stream of its own, which it draws into the capture at its first call.
class StreamCapture {
 public:
  explicit StreamCapture(cudaStream_t stream) : stream_(stream) {
    // Other threads may go on calling the driver as they like.
    HR_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  ~StreamCapture() {
    cudaGraph_t graph = nullptr;
    if (stream_ != nullptr && cudaStreamEndCapture(stream_, &graph) == cudaSuccess) cudaGraphDestroy(graph);
    cudaGetLastError();  // what was refused while capturing has been thrown
  }
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;

  // Puts what the task queues behind `after`. A task that queues nothing only passes on what it waits for.
  Ends add(const Task& task, Ends& after) {
    std::vector<cudaGraphEdgeData> edges(after.size());
    for (size_t i = 0; i < after.size() && task.starts_early; ++i) {
      cudaGraphNodeType type{};
      HR_CHECK(cudaGraphNodeGetType(after[i], &type));
      if (type != cudaGraphNodeTypeKernel) continue;
      edges[i].from_port = cudaGraphKernelNodePortProgrammatic;
      edges[i].type = cudaGraphDependencyTypeProgrammatic;
    }
    HR_CHECK(set_dependencies(stream_, after.data(), edges.data(), after.size(),
                              cudaStreamSetCaptureDependencies));
    task.run(Stream{stream_});

    cudaStreamCaptureStatus status{};
    const cudaGraphNode_t* nodes = nullptr;
    const cudaGraphEdgeData* unused = nullptr;  // a query that could not give it would fail
    size_t count = 0;
    HR_CHECK(get_capture_info(stream_, &status, nullptr, nullptr, &nodes, &unused, &count));
    return Ends(nodes, nodes + count);
  }

  Graph end() {
    cudaGraph_t graph = nullptr;
    HR_CHECK(cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph));
    return Graph(graph);
  }

 private:
  cudaStream_t stream_;
};

class CudaGraphCapture final : public Capture {
 public:
  CudaGraphCapture(std::span<const Task> tasks, int64_t repeats);
  ~CudaGraphCapture() override { cudaGraphExecDestroy(graph_); }
  CudaGraphCapture(const CudaGraphCapture&) = delete;
  CudaGraphCapture& operator=(const CudaGraphCapture&) = delete;

  void launch(Stream stream) override { HR_CHECK(cudaGraphLaunch(graph_, stream_of(stream))); }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

CudaGraphCapture::CudaGraphCapture(std::span<const Task> tasks, int64_t repeats) {
  check_tasks(tasks, repeats);
  const OwnedStream stream = new_stream();
  StreamCapture capture(stream.get());
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
      current[i] = capture.add(tasks[i], after);
    }
    previous = current;
  }
  const Graph graph = capture.end();
  HR_CHECK(cudaGraphInstantiate(&graph_, graph.get(), 0));
  try {
    // Otherwise the first launch would do it.
    HR_CHECK(cudaGraphUpload(graph_, stream.get()));
    HR_CHECK(cudaStreamSynchronize(stream.get()));
  } catch (...) {
    cudaGraphExecDestroy(graph_);
    throw;
  }
}

}  // namespace

std::unique_ptr<Capture> CudaCaptures::capture(std::span<const Task> tasks, int64_t repeats) {
  gpu_.initialise();
  return std::make_unique<CudaGraphCapture>(tasks, repeats);
}

}  // namespace headroom::cuda
