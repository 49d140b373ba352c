// Any device with faults put in: the n-th driver call fails with the error that a real one gives. For tests
// of what lies above.
#pragma once

#include <set>
#include <string>

#include "runtime/device/device.h"
#include "runtime/device/faulty/fault_injector.h"
#include "runtime/device/faulty/faulty_memory.h"

namespace headroom {

// Driver calls are: allocations, copies, calls of virtual memory, recordings and their launches, and the
// first initialise(), start_library() and load_module() of each thing that succeeds here. Releases cannot
// fail and do not count.
class FaultyDevice final : public Device {
 public:
  // `upstream` must outlive this. No fault until one is armed.
  explicit FaultyDevice(Device& upstream) : upstream_(upstream), memory_(upstream.memory(), faults_) {}

  FaultInjector& faults() { return faults_; }

  DeviceKind kind() const override { return upstream_.kind(); }
  const std::string& name() const override { return upstream_.name(); }
  const std::string& description() const override { return upstream_.description(); }
  int compute_capability() const override { return upstream_.compute_capability(); }
  DeviceMemory& memory() override { return memory_; }
  void initialise() override;
  void start_library(Library library) override;
  void load_module(std::string_view op_name, Library library) override;
  int64_t pending_library_bytes() const override { return upstream_.pending_library_bytes(); }
  Stream new_stream() override { return upstream_.new_stream(); }
  void delete_stream(Stream stream) noexcept override { upstream_.delete_stream(stream); }
  void wait(Stream stream, Stream other) override { upstream_.wait(stream, other); }
  void wait(Stream stream, const Event& event) override { upstream_.wait(stream, event); }
  std::unique_ptr<Event> record_event(Stream stream) override { return upstream_.record_event(stream); }
  void queue(Stream stream, StreamWork work) override { upstream_.queue(stream, std::move(work)); }
  bool takes_work(Stream stream) const override { return upstream_.takes_work(stream); }
  void copy_to_device(void* device, const void* host, int64_t bytes, Stream stream) override;
  void copy_to_host(void* host, const void* device, int64_t bytes, Stream stream) override;
  std::unique_ptr<StreamOrderedPool> make_stream_ordered_pool(
      const StreamOrderedPoolSettings& settings) override;
  void synchronize(Stream stream) override { upstream_.synchronize(stream); }
  std::unique_ptr<Recording> record(std::span<const Task> tasks, int64_t repeats) override;
  ThreadPool* kernel_threads() override { return upstream_.kernel_threads(); }
  double driver_time_us() const override { return upstream_.driver_time_us(); }

 private:
  bool is_done(const std::string& call) const;
  void mark_done(std::string call);

  Device& upstream_;
  FaultInjector faults_;
  FaultyMemory memory_;
  mutable std::mutex mutex_;
  std::set<std::string> done_;  // calls whose repetition reaches no driver
};

}  // namespace headroom
