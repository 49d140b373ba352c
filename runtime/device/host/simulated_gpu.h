// A GPU that is not there: a profile's memory, context, library handles and kernels, with the failures that a
// real one shows when memory is short. Knows no kernel: work on it runs on the CPU.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "runtime/device/device.h"
#include "runtime/device/host/in_order_recording.h"
#include "runtime/device/host/profiles.h"
#include "runtime/device/host/simulated_memory.h"
#include "runtime/device/host/simulated_streams.h"

namespace headroom {

class SimulatedGpu final : public Device {
 public:
  // The GPU with that ordinal on its machine, as "/device:GPU:<ordinal>" unless it has another name. Throws
  // InvalidArgument for a profile whose sizes contradict each other.
  // Kernels use so many threads of the host.
  explicit SimulatedGpu(DeviceProfile profile, int ordinal = 0, Backing backing = Backing::kHostMemory,
                        std::string name = {}, int threads = 1);

  DeviceKind kind() const override { return DeviceKind::kSimulatedGpu; }
  const std::string& name() const override { return name_; }
  const std::string& description() const override { return description_; }
  int compute_capability() const override { return profile_.compute_capability; }
  DeviceMemory& memory() override { return memory_; }
  // The three below make the context first if nobody has.
  void initialise() override;
  void start_library(Library library) override;
  void load_module(std::string_view op_name, Library library) override;
  int64_t pending_library_bytes() const override;
  Stream new_stream() override { return streams_.add(); }
  void delete_stream(Stream stream) noexcept override { streams_.remove(stream); }
  void wait(Stream stream, Stream other) override { streams_.wait(stream, other); }
  void wait(Stream stream, const Event& event) override { streams_.wait(stream, event); }
  std::unique_ptr<Event> record_event(Stream stream) override { return streams_.record(stream); }
  void queue(Stream stream, StreamWork work) override;
  bool takes_work(Stream stream) const override {
    return profile_.kernel_us > 0 || profile_.copy_bytes_per_us > 0 || streams_.takes_work(stream);
  }
  // As a driver does it: from memory of allocate_host the copy is queued, with other memory the host waits
  // for it.
  void copy_to_device(void* device, const void* host, int64_t bytes, Stream stream) override {
    memory_.copy_to_device(device, host, bytes, stream);
  }
  void copy_to_host(void* host, const void* device, int64_t bytes, Stream stream) override {
    memory_.copy_to_host(host, device, bytes, stream);
  }
  std::unique_ptr<StreamOrderedPool> make_stream_ordered_pool(
      const StreamOrderedPoolSettings& settings) override {
    return memory_.make_pool(settings);
  }
  void synchronize(Stream stream) override { streams_.synchronize(stream); }
  std::unique_ptr<Recording> record(std::span<const Task> tasks, int64_t repeats) override {
    return record_in_order(tasks, repeats);
  }
  ThreadPool* kernel_threads() override { return &kernel_threads_; }
  double driver_time_us() const override { return memory_.driver_time_us(); }

  const DeviceProfile& profile() const { return profile_; }
  // Its streams and their clock, on which work takes the time that the profile or who queues it says.
  SimulatedStreams& streams() { return streams_; }

 private:
  void make_context();
  const LibraryProfile& costs(Library library) const;
  int64_t module_bytes(Library library) const;

  const DeviceProfile profile_;
  const int ordinal_;
  const std::string name_;
  const std::string description_;
  SimulatedStreams streams_;
  SimulatedMemory memory_;
  mutable std::mutex mutex_;
  ThreadPool kernel_threads_;
  bool has_context_ = false;
  std::array<bool, 3> started_{};  // by Library
  std::array<bool, 3> loaded_{};   // by Library; kNone: kernels that belong to none
};

// The GPU of the profile of that name, see find_profile. Throws InvalidArgument for an unknown name.
std::unique_ptr<SimulatedGpu> make_simulated_gpu(std::string_view profile_name, int ordinal = 0);

}  // namespace headroom
