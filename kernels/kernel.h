// The kernel seam: how one op is computed on one kind of device. Knows no graph and no strategy; workspace
// reaches a kernel as a pointer.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/enum_names.h"
#include "base/tensor.h"
#include "collective/device_collective.h"
#include "device/device.h"
#include "ops/ops.h"

namespace headroom {

// One op prepared for fixed shapes. Preparing takes no memory and no time that grow with the extents; the
// first run may make tables, later ones allocate nothing from the system heap.
class Kernel {
 public:
  virtual ~Kernel() = default;

  // Scratch memory that run() needs, on the device, aligned to 256 bytes.
  virtual int64_t workspace_bytes() const { return 0; }
  // Set for a kernel that may start on a GPU while earlier work still runs, and waits for it on the
  // device. Before that it reads only these inputs, which the earlier work must not change.
  virtual std::optional<std::vector<int>> early_inputs() const { return {}; }
  // The collective that run() calls, together with all replicas; null for most kernels.
  virtual DeviceCollective* collective() const { return nullptr; }
  // Computes the op. Views have the shapes that the kernel was made for. An optional output without a reader
  // has null data. An input and an output may be the same memory where in_place_input allows it. Throws
  // DeviceError for data that the op cannot take (an index out of range), CollectiveError as
  // DeviceCollective does.
  virtual void run(std::span<const TensorView> inputs, std::span<const TensorView> outputs, void* workspace,
                   Stream stream) = 0;
};

// The precision of f32 products on a GPU. In every mode sums are f32, and values and weights stay f32 in
// memory.
enum class Math : uint8_t {
  kF32,   // as exact as f32 multiply-adds
  kTf32,  // operands rounded to 10 bits of mantissa
  kBf16,  // to 7
  kF16,   // to 10, with f16's range: gradients need a loss scale
};
constexpr auto value_names(Math) {
  return std::to_array<std::string_view>({"f32", "tf32", "bf16", "f16"});
}

// The choice among several kernels of an op, and their resources.
struct KernelSettings {
  Math math = Math::kTf32;
  bool library_only = false;      // use cuBLAS or cuDNN instead of our fused kernels
  bool deterministic = true;      // the same bits on every run
  ThreadPool* threads = nullptr;  // for CPU kernels, must outlive them; null: the caller's thread alone
  int64_t workspace_limit_bytes = int64_t{256} << 20;  // no kernel may ask for more
  // Device memory for timing algorithms while a kernel is made.
  int64_t timing_limit_bytes = std::numeric_limits<int64_t>::max();
  DeviceCollective* collective = nullptr;  // collective of the replicas; must outlive the kernels
};

// The inputs for making a kernel: shapes that have passed infer_outputs, and settings. Valid during the call
// that makes the kernel.
struct KernelRequest {
  std::span<const TensorSpec> inputs, outputs;
  const KernelSettings& settings;
};

// Makes the kernel of `op` on the CPU, which also serves simulated GPUs. Reads only the collective and the
// threads of the settings; the bits are the same on any number of threads.
std::unique_ptr<Kernel> make_cpu_kernel(const Op& op, std::span<const TensorSpec> inputs,
                                        std::span<const TensorSpec> outputs,
                                        const KernelSettings& settings = {});

// The kernel of `op` on an NVIDIA GPU. `device` must be a CUDA device and outlive the kernel. Starts the
// libraries that the op needs; throws LibraryError when one cannot start, InvalidArgument in a build without
// CUDA.
std::unique_ptr<Kernel> make_cuda_kernel(const Op& op, std::span<const TensorSpec> inputs,
                                         std::span<const TensorSpec> outputs, Device& device,
                                         const KernelSettings& settings);

}  // namespace headroom
