// Tensors of floats stored in 16 bits for tests of kernels.
#pragma once

#include <vector>

#include "kernels/cpu/half_kernel.h"
#include "tests/kernels/host_tensor.h"

namespace headroom::test {

inline HostTensor stored_in(DType half, const HostTensor& whole) {
  HostTensor result({half, whole.spec().shape});
  cpu::narrow(half, whole.data(), result.data<void>(), whole.elements());
  return result;
}

inline HostTensor widened(const HostTensor& stored) {
  HostTensor result({DType::kF32, stored.spec().shape});
  cpu::widen(stored.spec().dtype, stored.data<void>(), result.data(), stored.elements());
  return result;
}

// The floats among `specs` in 16 bits.
inline std::vector<TensorSpec> stored_in(DType half, std::vector<TensorSpec> specs) {
  for (TensorSpec& spec : specs) {
    if (spec.dtype == DType::kF32) spec.dtype = half;
  }
  return specs;
}
inline std::vector<HostTensor> stored_in(DType half, const std::vector<HostTensor>& tensors) {
  std::vector<HostTensor> results;
  for (const HostTensor& tensor : tensors) {
    const bool is_real = tensor.spec().dtype == DType::kF32;
    results.push_back(is_real ? stored_in(half, tensor) : tensor);
  }
  return results;
}

// The outputs of the CPU's kernel for operands of any types, stored as `outputs` say.
inline std::vector<HostTensor> run_as(const Op& op, const std::vector<HostTensor>& inputs,
                                      const std::vector<TensorSpec>& outputs) {
  std::vector<HostTensor> results(outputs.begin(), outputs.end());
  const std::unique_ptr<Kernel> kernel = make_cpu_kernel(op, specs_of(inputs), outputs);
  const HostTensor workspace({DType::kU8, {kernel->workspace_bytes()}});
  kernel->run(views_of(inputs), views_of(results), workspace.data<void>(), {});
  return results;
}

}  // namespace headroom::test
