// The kernel seam: how one op is computed on one kind of device. Knows no graph and no strategy; workspace
// reaches a kernel as a pointer.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/collective/device_collective.h"
#include "runtime/device/device.h"
#include "runtime/ops/ops.h"

namespace headroom {

// One op prepared for fixed shapes. Running allocates nothing from the system heap.
class Kernel {
 public:
  virtual ~Kernel() = default;

  // Scratch memory that run() needs, on the device, aligned to 256 bytes.
  virtual int64_t workspace_bytes() const { return 0; }
  // Set for a kernel that a GPU may start while the work it has to wait for still runs: it waits on the
  // device. Until then it reads only these inputs, which none of that work may change.
  virtual std::optional<std::vector<int>> early_inputs() const { return {}; }
  // What run() makes a call of, which all replicas make together; null for most.
  virtual DeviceCollective* collective() const { return nullptr; }
  // Computes the op. Views have the shapes that the kernel was made for. An optional output without a reader
  // has null data. An input and an output may be the same memory where in_place_input allows it. Throws
  // DeviceError for data that the op cannot take (an index out of range), CollectiveError as
  // DeviceCollective does.
  virtual void run(std::span<const TensorView> inputs, std::span<const TensorView> outputs, void* workspace,
                   Stream stream) = 0;
};

// How products of f32 values are computed on a GPU. Sums are kept in f32 in every mode, values and weights
// stay f32 in memory.
enum class Math : uint8_t {
  kF32,   // as exact as f32 multiply-adds
  kTf32,  // operands rounded to 10 bits of mantissa
  kBf16,  // to 7
  kF16,   // to 10, with f16's range: gradients need a loss scale
};

// What decides which of several kernels computes an op on a GPU, and with whom.
struct KernelSettings {
  Math math = Math::kTf32;
  bool library_only = false;      // never a fused kernel of our own where cuBLAS or cuDNN has the op
  bool deterministic = true;      // the same bits on every run
  ThreadPool* threads = nullptr;  // for kernels on the CPU, which it must outlive; null: the caller's alone
  int64_t workspace_limit_bytes = int64_t{256} << 20;  // no kernel may ask for more
  DeviceCollective* collective = nullptr;              // of the replicas; must outlive the kernels
};

// What a kernel is made for: shapes that have passed infer_outputs, and how it is to compute. Lives as long
// as the call that makes the kernel.
struct KernelRequest {
  std::span<const TensorSpec> inputs, outputs;
  const KernelSettings& settings;
};

// The kernel of `op` on the CPU, which serves simulated GPUs too. Reads the collective and the threads of the
// settings alone; the bits are the same on any number of threads.
std::unique_ptr<Kernel> make_cpu_kernel(const Op& op, std::span<const TensorSpec> inputs,
                                        std::span<const TensorSpec> outputs,
                                        const KernelSettings& settings = {});

// Whether the op has a CUDA kernel. False in a build without CUDA.
bool has_cuda_kernel(const Op& op);
// The kernel of `op` on an NVIDIA GPU. `device` must be a CUDA device and outlive the kernel. Starts the
// libraries that the op needs; throws LibraryError when one cannot start, InvalidArgument in a build without
// CUDA.
std::unique_ptr<Kernel> make_cuda_kernel(const Op& op, std::span<const TensorSpec> inputs,
                                         std::span<const TensorSpec> outputs, Device& device,
                                         const KernelSettings& settings);

}  // namespace headroom
