// The CPU as a device: work runs at once, libraries take nothing. Knows no kernel.
#pragma once

#include <optional>
#include <string>

#include "runtime/device/device.h"
#include "runtime/device/host/cpu_memory.h"
#include "runtime/device/host/in_order_recording.h"
#include "runtime/device/host/simulated_streams.h"

namespace headroom {

// What one kernel uses, and how many kernels run side by side where a recording leaves them unordered.
struct CpuThreads {
  int intra_op = 1;
  int inter_op = 1;
};

class CpuDevice final : public Device {
 public:
  // The capacity is the machine's physical memory unless given. Throws InvalidArgument for one below one
  // byte, and for fewer than one thread.
  explicit CpuDevice(std::optional<int64_t> capacity_bytes = std::nullopt, CpuThreads threads = {});

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  const std::string& name() const override { return name_; }
  const std::string& description() const override { return description_; }
  int compute_capability() const override { return 0; }
  DeviceMemory& memory() override { return memory_; }
  void initialise() override {}
  void start_library(Library) override {}
  void load_module(std::string_view, Library) override {}
  int64_t pending_library_bytes() const override { return 0; }
  Stream new_stream() override { return streams_.add(); }
  void delete_stream(Stream stream) noexcept override { streams_.remove(stream); }
  void wait(Stream stream, Stream other) override { streams_.wait(stream, other); }
  void wait(Stream stream, const Event& event) override { streams_.wait(stream, event); }
  std::unique_ptr<Event> record_event(Stream stream) override { return streams_.record(stream); }
  std::unique_ptr<StreamOrderedPool> make_stream_ordered_pool(
      const StreamOrderedPoolSettings& settings) override {
    return memory_.make_pool(settings, streams_);
  }
  void synchronize(Stream stream) override { streams_.synchronize(stream); }
  std::unique_ptr<Recording> record(std::span<const Task> tasks, int64_t repeats) override;
  ThreadPool* kernel_threads() override { return &kernel_threads_; }
  double driver_time_us() const override { return 0; }

 private:
  std::string name_ = "/device:CPU:0";
  std::string description_;
  CpuMemory memory_;
  SimulatedStreams streams_;
  const int inter_op_threads_;
  ThreadPool kernel_threads_;
};

}  // namespace headroom
