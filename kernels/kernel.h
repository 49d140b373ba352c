// The kernel seam: how one op is computed on one kind of device. Knows no graph and no strategy; workspace reaches a
// kernel as a pointer.
#pragma once

#include <memory>
#include <span>

#include "runtime/core/device.h"
#include "runtime/core/ops.h"
#include "runtime/core/tensor.h"

namespace headroom {

// One op prepared for fixed shapes. Running allocates nothing from the system heap.
class Kernel {
 public:
  virtual ~Kernel() = default;

  // Scratch memory that run() needs, on the device, aligned to 256 bytes.
  virtual int64_t workspace_bytes() const { return 0; }
  // Computes the op. Views have the shapes that the kernel was made for. An optional output without a reader has null
  // data. Input and output 0 may be the same memory where in_place_input allows it. Throws DeviceError for data that
  // the op cannot take (an index out of range).
  virtual void run(std::span<const TensorView> inputs, std::span<const TensorView> outputs, void* workspace,
                   Stream stream) = 0;
};

// The kernel of `op` on the CPU, which serves simulated GPUs too. Shapes must have passed infer_outputs.
std::unique_ptr<Kernel> make_cpu_kernel(const Op& op, std::span<const TensorSpec> inputs,
                                        std::span<const TensorSpec> outputs);

}  // namespace headroom
