// An op that a program describes itself, with kernels of its own, and how the graph holds it. Knows no graph:
// of the types of a gradient only the names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "device/stream.h"
#include "ops/op.h"
#include "ops/op_check.h"

namespace headroom {

struct Value;            // runtime/graph/graph.h
struct GradientContext;  // runtime/graph/gradients.h

// The memory of one run of a kernel, and the stream that it runs on.
struct KernelCall {
  std::span<const TensorView> inputs;
  std::span<const TensorView> outputs;
  void* workspace = nullptr;
  Stream stream = {};

  template <typename T = float>
  const T* in(size_t i) const {
    return inputs[i].as<const T>();
  }
  // An input that the op changes.
  template <typename T = float>
  T* mutated(size_t i) const {
    return inputs[i].as<T>();
  }
  template <typename T = float>
  T* out(size_t i = 0) const {
    return outputs[i].as<T>();
  }
  // The workspace as an array.
  template <typename T>
  T* scratch() const {
    return static_cast<T*>(workspace);
  }
};

// The description of an op, usually a constant of the program; it must outlive all graphs with the op. Its
// functions may run on several threads at once. Kernels compute all results, change no operand, and give the
// same results for the same operands: a step that keeps to a budget may compute a node twice.
struct CustomOp {
  using KernelFunction = std::function<void(const KernelCall&)>;

  // The word for the op in messages, node names, traces and plans.
  std::string name;
  // Checks the operands and returns the types and shapes of the results, at least one. A graph stored in 16
  // bits leaves these types, and the operands', as they are. Throws InvalidArgument, as the functions of
  // OpCheck do.
  std::function<Outputs(const OpCheck&)> infer;
  // Computes the results on the CPU, and on a simulated GPU. Absent: sessions refuse the op there.
  KernelFunction cpu = {};
  // Queues the computation on a GPU, on `static_cast<cudaStream_t>(call.stream.handle)`; all pointers are to
  // memory of the device. It must not wait or allocate, because a session records it in a CUDA graph.
  KernelFunction cuda = {};
  // The bytes of scratch memory that a kernel takes as `call.workspace`. Absent: none.
  std::function<int64_t(std::span<const TensorSpec> inputs)> workspace_bytes = {};
  // Returns the gradient of each operand, built from other ops; absent where none flows to an operand, as to
  // an integer. Without the function gradients() refuses a path through the op.
  std::function<std::vector<std::optional<Value>>(const GradientContext&)> gradient = {};
  // True: a part of the batch gives the rows of that part, or its mean for a result over the batch. Otherwise
  // no step with the op runs in parts of its batch.
  bool splits_batch = false;
};

// operands -> results, as the description says
struct Custom {
  static constexpr OpTraits kTraits{.name = "custom"};  // an op has the name of its description
  const CustomOp* op;

  explicit Custom(const CustomOp& description) : op(&description) {}
  explicit Custom(CustomOp&&) = delete;  // it would not outlive the graph
  std::string_view name() const { return op->name; }
  Outputs infer(const OpCheck& c) const;
  // The scratch memory of its kernels for operands that have passed infer. Throws InvalidArgument if the
  // description gives less than none.
  int64_t workspace_bytes(std::span<const TensorSpec> inputs) const;
};

}  // namespace headroom
