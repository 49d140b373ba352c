// A kernel made of a function for fixed shapes, so that an op needs no class. Knows no op.
#pragma once

#include <memory>
#include <utility>

#include "kernels/kernel.h"
#include "kernels/kernel_call.h"

namespace headroom::cpu {

using Call = KernelCall;

template <typename F>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(F function, int64_t workspace_bytes)
      : function_(std::move(function)), workspace_bytes_(workspace_bytes) {}
  int64_t workspace_bytes() const override { return workspace_bytes_; }
  void run(std::span<const TensorView> inputs, std::span<const TensorView> outputs, void* workspace,
           Stream) override {
    function_(Call{inputs, outputs, workspace});
  }

 private:
  const F function_;
  const int64_t workspace_bytes_;
};

// The kernel that calls `function(const Call&)`.
template <typename F>
std::unique_ptr<Kernel> function_kernel(F function, int64_t workspace_bytes = 0) {
  return std::make_unique<FunctionKernel<F>>(std::move(function), workspace_bytes);
}

}  // namespace headroom::cpu
