#include "runtime/core/cuda/cuda_recording.h"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/core/cuda/check.h"
#include "runtime/core/cuda/cuda_device.h"
#include "runtime/core/in_order_recording.h"

namespace headroom::cuda {
namespace {

struct Destroy {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroy>;
using OwnedStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy>;

Graph new_graph() {
  cudaGraph_t graph = nullptr;
  HR_CHECK(cudaGraphCreate(&graph, 0));
  return Graph(graph);
}

// One that does not wait for the default stream: capturing would be refused.
OwnedStream new_stream() {
  cudaStream_t stream = nullptr;
  HR_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return OwnedStream(stream);
}

// The nodes at the end of a task: whoever waits for the task waits for them.
using Ends = std::vector<cudaGraphNode_t>;

// Capturing `stream` into `graph`, which ends with the object, also when a task throws.
class Capture {
 public:
  Capture(cudaGraph_t graph, cudaStream_t stream, const Ends& after, bool starts_early) : stream_(stream) {
    std::vector<cudaGraphEdgeData> edges(after.size());
    for (size_t i = 0; i < after.size(); ++i) {
      cudaGraphNodeType type{};
      HR_CHECK(cudaGraphNodeGetType(after[i], &type));
      if (!starts_early || type != cudaGraphNodeTypeKernel) continue;
      edges[i].from_port = cudaGraphKernelNodePortProgrammatic;
      edges[i].type = cudaGraphDependencyTypeProgrammatic;
    }
    // Other threads may go on calling the driver as they like.
    HR_CHECK(cudaStreamBeginCaptureToGraph(stream, graph, after.data(), edges.data(), after.size(),
                                           cudaStreamCaptureModeThreadLocal));
  }
  ~Capture() {
    cudaGraph_t graph = nullptr;
    if (stream_ != nullptr) cudaStreamEndCapture(stream_, &graph);
    cudaGetLastError();  // what was refused while capturing has been thrown
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  Ends end() {
    cudaStreamCaptureStatus status{};
    const cudaGraphNode_t* nodes = nullptr;
    size_t count = 0;
#if CUDART_VERSION >= 13000
    HR_CHECK(cudaStreamGetCaptureInfo(stream_, &status, nullptr, nullptr, &nodes, nullptr, &count));
#else
    HR_CHECK(cudaStreamGetCaptureInfo_v3(stream_, &status, nullptr, nullptr, &nodes, nullptr, &count));
#endif
    Ends ends(nodes, nodes + count);
    cudaGraph_t graph = nullptr;
    HR_CHECK(cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph));
    return ends;
  }

 private:
  cudaStream_t stream_;
};

// Puts what the task queues into the graph. A task that queues nothing only passes on what it waits for.
Ends add(cudaGraph_t graph, cudaStream_t stream, const Task& task, const Ends& after) {
  Capture capture(graph, stream, after, task.starts_early);
  task.run(Stream{stream});
  return capture.end();
}

}  // namespace

CudaRecording::CudaRecording(std::span<const Task> tasks, int64_t repeats) {
  check_tasks(tasks, repeats);
  const OwnedStream stream = new_stream();
  const Graph graph = new_graph();
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
      current[i] = add(graph.get(), stream.get(), tasks[i], after);
    }
    previous = current;
  }
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

CudaRecording::~CudaRecording() {
  cudaGraphExecDestroy(graph_);
}

void CudaRecording::launch(Stream stream) {
  HR_CHECK(cudaGraphLaunch(graph_, stream_of(stream)));
}

}  // namespace headroom::cuda
