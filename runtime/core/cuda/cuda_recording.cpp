#include "runtime/core/cuda/cuda_recording.h"

#include <memory>
#include <type_traits>
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

// What the task queues, as a graph of its own.
Graph capture(const Task& task, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  // Other threads may go on calling the driver as they like.
  HR_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    task.run(Stream{stream});
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    cudaGetLastError();
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  HR_CHECK(cudaStreamEndCapture(stream, &graph));
  return Graph(graph);
}

// Puts the part into `graph` after those nodes. As a child it costs no more than its own nodes would,
// measured on an H200; a part that queues nothing only keeps the order.
cudaGraphNode_t add(cudaGraph_t graph, cudaGraph_t part, const std::vector<cudaGraphNode_t>& after) {
  size_t nodes = 0;
  HR_CHECK(cudaGraphGetNodes(part, nullptr, &nodes));
  cudaGraphNode_t node = nullptr;
  if (nodes > 0) {
    HR_CHECK(cudaGraphAddChildGraphNode(&node, graph, after.data(), after.size(), part));
  } else {
    HR_CHECK(cudaGraphAddEmptyNode(&node, graph, after.data(), after.size()));
  }
  return node;
}

}  // namespace

CudaRecording::CudaRecording(std::span<const Task> tasks, int64_t repeats) {
  check_tasks(tasks, repeats);
  const OwnedStream stream = new_stream();
  std::vector<Graph> parts;
  for (const Task& task : tasks) parts.push_back(capture(task, stream.get()));

  const Graph graph = new_graph();
  std::vector<cudaGraphNode_t> previous, current(tasks.size());
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    for (size_t i = 0; i < tasks.size(); ++i) {
      std::vector<cudaGraphNode_t> after;
      for (int other : tasks[i].after) after.push_back(current[static_cast<size_t>(other)]);
      if (repeat > 0) {
        for (int other : tasks[i].after_previous) after.push_back(previous[static_cast<size_t>(other)]);
      }
      current[i] = add(graph.get(), parts[i].get(), after);
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
