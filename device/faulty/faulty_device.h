// Any device with faults put in: the n-th driver call fails with the error that a real one gives. For tests.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "device/device.h"
#include "device/faulty/fault_injector.h"
#include "device/faulty/faulty_memory.h"

namespace headroom {

// Driver calls are: allocations, copies, calls of virtual memory, captures and their launches, and the first
// initialize(), start() and load_module() of each thing that succeeds here. Releases cannot fail and do not
// count, nor do the calls of streams.
class FaultyDevice final : public Device {
 public:
  // `upstream` must outlive this. No fault until one is armed.
  explicit FaultyDevice(Device& upstream)
      : upstream_(upstream), memory_(upstream.memory(), faults_), libraries_(*this), captures_(*this) {}

  FaultInjector& faults() { return faults_; }

  const DeviceInfo& info() const override { return upstream_.info(); }
  void initialize() override;
  DeviceMemory& memory() override { return memory_; }
  DeviceStreams& streams() override { return upstream_.streams(); }
  DeviceLibraries& libraries() override { return libraries_; }
  DeviceCaptures& captures() override { return captures_; }
  KernelTarget kernel_target() override { return upstream_.kernel_target(); }
  bool copy_from(Device& other, void* to, const void* from, int64_t bytes, Stream stream = {}) override;

 private:
  class FaultyLibraries final : public DeviceLibraries {
   public:
    explicit FaultyLibraries(FaultyDevice& device) : device_(device) {}
    void start(Library library) override;
    void load_module(std::string_view op_name, Library library) override;
    void expect(std::span<const Library> libraries) override { upstream().expect(libraries); }
    bool is_expected(Library library) const override { return upstream().is_expected(library); }
    int64_t pending_bytes() const override { return upstream().pending_bytes(); }
    bool start_with_kernels() const override { return upstream().start_with_kernels(); }

   private:
    DeviceLibraries& upstream() const { return device_.upstream_.libraries(); }
    FaultyDevice& device_;
  };
  class FaultyCaptures final : public DeviceCaptures {
   public:
    explicit FaultyCaptures(FaultyDevice& device) : device_(device) {}
    std::unique_ptr<Capture> capture(std::span<const Task> tasks, int64_t repeats) override;
    bool call_tasks() const override { return device_.upstream_.captures().call_tasks(); }

   private:
    FaultyDevice& device_;
  };

  bool is_done(const std::string& call) const;
  void mark_done(std::string call);

  Device& upstream_;
  FaultInjector faults_;
  FaultyMemory memory_;
  FaultyLibraries libraries_;
  FaultyCaptures captures_;
  mutable std::mutex mutex_;
  std::set<std::string> done_;  // calls whose repetition reaches no driver
};

}  // namespace headroom
