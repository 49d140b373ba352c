// A kernel made of a function for fixed shapes, so that an op needs no class. Knows no op and no device.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/kernel.h"

namespace headroom {

template <typename F>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(F function, int64_t workspace_bytes, std::optional<std::vector<int>> early_inputs)
      : function_(std::move(function)),
        workspace_bytes_(workspace_bytes),
        early_inputs_(std::move(early_inputs)) {}
  int64_t workspace_bytes() const override { return workspace_bytes_; }
  std::optional<std::vector<int>> early_inputs() const override { return early_inputs_; }
  void run(std::span<const TensorView> inputs, std::span<const TensorView> outputs, void* workspace,
           Stream stream) override {
    function_(KernelCall{inputs, outputs, workspace, stream});
  }

 private:
  const F function_;
  const int64_t workspace_bytes_;
  const std::optional<std::vector<int>> early_inputs_;
};

// The kernel that calls `function(const Call&)`. On a GPU it queues work on the call's stream and waits for
// nothing.
template <typename F>
std::unique_ptr<Kernel> function_kernel(F function, int64_t workspace_bytes = 0,
                                        std::optional<std::vector<int>> early_inputs = {}) {
  return std::make_unique<FunctionKernel<F>>(std::move(function), workspace_bytes, std::move(early_inputs));
}

}  // namespace headroom
