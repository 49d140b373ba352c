// One NVIDIA GPU as a device. Knows no kernel and no strategy.
#pragma once

#include "device/cuda/cuda_captures.h"
#include "device/cuda/cuda_gpu.h"
#include "device/cuda/cuda_streams.h"
#include "device/device.h"

namespace headroom::cuda {

class CudaDevice final : public Device {
 public:
  // See make_cuda_device.
  explicit CudaDevice(const CudaSettings& settings) : gpu_(settings) {}

  const DeviceInfo& info() const override { return gpu_.info(); }
  void initialize() override { gpu_.initialize(); }
  CudaMemory& memory() override { return gpu_.memory(); }
  DeviceStreams& streams() override { return streams_; }
  DeviceLibraries& libraries() override { return libraries_; }
  DeviceCaptures& captures() override { return captures_; }
  KernelTarget kernel_target() override { return {.gpu = &gpu_}; }
  bool copy_from(Device& other, void* to, const void* from, int64_t bytes, Stream stream = {}) override;

  CudaGpu& gpu() { return gpu_; }

 private:
  // The memory of libraries is unknown before their first use, and may be incomplete after it.
  class Libraries final : public DeviceLibraries {
   public:
    explicit Libraries(CudaGpu& gpu) : gpu_(gpu) {}
    void start(Library library) override { gpu_.start(library); }
    bool start_with_kernels() const override { return true; }
    // Code and pages of the driver's that kernels load when they run. Measured on an H200 with driver 580,
    // LeNet in 800 MiB: 2 to 10 MiB past a limit that left nothing for them, and with this none past one of
    // 900 MiB.
    int64_t pending_bytes() const override { return int64_t{16} << 20; }

   private:
    CudaGpu& gpu_;
  };

  CudaGpu gpu_;
  CudaStreams streams_{gpu_};
  Libraries libraries_{gpu_};
  CudaCaptures captures_{gpu_};
};

}  // namespace headroom::cuda
