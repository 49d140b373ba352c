// A GPU that is not there: a profile's memory, context, library handles and kernels, with the failures that a
// real one shows when memory is short. Knows no kernel: work on it runs on the CPU.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "device/device.h"
#include "device/host/profiles.h"
#include "device/host/simulated_captures.h"
#include "device/host/simulated_memory.h"
#include "device/host/simulated_streams.h"

namespace headroom {

// The context of a simulated GPU and its libraries, each of which uses the profile's bytes once.
class SimulatedLibraries final : public DeviceLibraries {
 public:
  // All must outlive it.
  SimulatedLibraries(const DeviceProfile& profile, const std::string& device_name, int ordinal,
                     SimulatedMemory& memory)
      : profile_(profile), device_name_(device_name), ordinal_(ordinal), memory_(memory) {}

  // See Device::initialize. The two below call it first.
  void initialize();
  void start(Library library) override;
  void load_module(std::string_view op_name, Library library) override;
  int64_t pending_bytes() const override;
  // Returns the bytes of the loaded handles and kernels.
  int64_t held_bytes() const;

 private:
  void make_context();

  const DeviceProfile& profile_;
  const std::string& device_name_;
  const int ordinal_;
  SimulatedMemory& memory_;
  mutable std::mutex mutex_;
  bool has_context_ = false;
  std::array<bool, 3> started_{};  // by Library
  std::array<bool, 3> loaded_{};   // by Library; kNone: kernels that belong to none
};

class SimulatedGpu final : public Device {
 public:
  // The GPU with that ordinal on its machine, as "/device:GPU:<ordinal>" unless it has another name; kernels
  // use `threads` threads of the host. Throws InvalidArgument for a profile whose sizes contradict each
  // other.
  explicit SimulatedGpu(DeviceProfile profile, int ordinal = 0, Backing backing = Backing::kHostMemory,
                        std::string name = {}, int threads = 1);

  const DeviceInfo& info() const override { return info_; }
  void initialize() override { libraries_.initialize(); }
  DeviceMemory& memory() override { return memory_; }
  // With a clock, work lasts for the time that it states itself, or the profile's time.
  SimulatedStreams& streams() override { return streams_; }
  SimulatedLibraries& libraries() override { return libraries_; }
  DeviceCaptures& captures() override { return captures_; }
  KernelTarget kernel_target() override { return {.threads = &kernel_threads_}; }

  const DeviceProfile& profile() const { return profile_; }

 private:
  const DeviceProfile profile_;
  const DeviceInfo info_;
  SimulatedStreams streams_;
  SimulatedMemory memory_;
  SimulatedLibraries libraries_;
  SimulatedCaptures captures_;
  ThreadPool kernel_threads_;
};

// The GPU of the profile of that name, see find_profile. Throws InvalidArgument for an unknown name.
std::unique_ptr<SimulatedGpu> make_simulated_gpu(std::string_view profile_name, int ordinal = 0);

}  // namespace headroom
