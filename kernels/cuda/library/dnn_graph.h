// One convolution through the graph interface of cuDNN: its engines, and algorithms made of them. The only
// place that calls cuDNN's backend; knows no workspace limit, no timing and no tensor of ours.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"

namespace headroom::cuda {

// Owns one descriptor of cuDNN's backend.
class DnnDescriptor {
 public:
  explicit DnnDescriptor(cudnnBackendDescriptorType_t type);
  ~DnnDescriptor();
  DnnDescriptor(DnnDescriptor&& other) noexcept : handle_(other.handle_) { other.handle_ = nullptr; }
  DnnDescriptor& operator=(DnnDescriptor&& other) noexcept;

  cudnnBackendDescriptor_t get() const { return handle_; }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

// An operand: extents in cuDNN's order, (N,C,H,W) or (K,C,KH,KW), with any strides (in elements).
struct DnnTensor {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::array<int64_t, 4> extents{}, strides{};
};

struct DnnProblem {
  ConvDirection direction;
  Conv2d conv;
  DnnTensor image, filter, result;  // x or dx, filter or dfilter, y or dy
};

// Restrictions on the engines.
struct DnnRules {
  bool exact = false;          // no rounding of f32 operands: no tensor cores, no down-conversion
  bool deterministic = false;  // the same bits on every run
};

// The operands of one run, on the device.
struct DnnPointers {
  const void *image, *filter, *result;
};

// An engine with its settings, ready to run: cuDNN's execution plan. Runs from one thread at a time.
class DnnAlgorithm {
 public:
  explicit DnnAlgorithm(DnnDescriptor execution_plan);

  int64_t workspace_bytes() const { return workspace_bytes_; }
  // Queues the convolution on `stream`. Which operand is written follows from the problem's direction.
  void run(cudnnHandle_t handle, const DnnPointers& operands, void* workspace, cudaStream_t stream) const;

 private:
  DnnDescriptor descriptor_;
  int64_t workspace_bytes_ = 0;
};

// The operation graph of one convolution, without engines where cuDNN does not know the problem. `handle`
// must outlive it.
class DnnGraph {
 public:
  DnnGraph(cudnnHandle_t handle, const DnnProblem& problem);

  // The engines that cuDNN suggests and the rules allow, best guess first, each as text that prepare() takes:
  // "engine 12 knobs 3:1 7:64".
  std::vector<std::string> engines(const DnnRules& rules) const;
  // The algorithm of an engine; none when the text is not one of engines() or the engine does not support the
  // problem.
  std::optional<DnnAlgorithm> prepare(const std::string& engine) const;

 private:
  cudnnHandle_t handle_;
  std::optional<DnnDescriptor> graph_;
};

}  // namespace headroom::cuda
