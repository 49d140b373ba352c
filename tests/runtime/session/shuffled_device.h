// A CPU whose recordings run their tasks in a drawn order, any that the tasks allow: what a GPU with parallel
// branches may do.
#pragma once

#include <memory>
#include <vector>

#include "runtime/base/random.h"
#include "runtime/device/host/cpu_device.h"

namespace headroom {

class ShuffledRecording final : public Recording {
 public:
  ShuffledRecording(std::span<const Task> tasks, int64_t repeats, uint64_t seed)
      : tasks_(tasks.begin(), tasks.end()), repeats_(static_cast<size_t>(repeats)), seed_(seed) {}

  void launch(Stream stream) override {
    const size_t count = tasks_.size(), all = count * repeats_;
    std::vector<bool> done(all);
    for (size_t turn = 0; turn < all; ++turn) {
      std::vector<size_t> ready;
      for (size_t i = 0; i < all; ++i) {
        if (!done[i] && may_run(i / count, i % count, done)) ready.push_back(i);
      }
      const size_t next = ready[random_words(seed_, launches_, turn)[0] % ready.size()];
      tasks_[next % count].run(stream);
      done[next] = true;
    }
    ++launches_;
  }

 private:
  bool may_run(size_t repeat, size_t task, const std::vector<bool>& done) const {
    for (int other : tasks_[task].after) {
      if (!done[repeat * tasks_.size() + static_cast<size_t>(other)]) return false;
    }
    for (int other : tasks_[task].after_previous) {
      if (repeat > 0 && !done[(repeat - 1) * tasks_.size() + static_cast<size_t>(other)]) return false;
    }
    return true;
  }

  std::vector<Task> tasks_;
  const size_t repeats_;
  const uint64_t seed_;
  uint64_t launches_ = 0;
};

class ShuffledDevice final : public Device {
 public:
  explicit ShuffledDevice(uint64_t seed) : seed_(seed) {}

  DeviceKind kind() const override { return cpu_.kind(); }
  const std::string& name() const override { return cpu_.name(); }
  const std::string& description() const override { return cpu_.description(); }
  int compute_capability() const override { return cpu_.compute_capability(); }
  DeviceMemory& memory() override { return cpu_.memory(); }
  void initialise() override {}
  void start_library(Library) override {}
  void load_module(std::string_view, Library) override {}
  int64_t pending_library_bytes() const override { return 0; }
  Stream new_stream() override { return cpu_.new_stream(); }
  void delete_stream(Stream stream) noexcept override { cpu_.delete_stream(stream); }
  void wait(Stream stream, Stream other) override { cpu_.wait(stream, other); }
  void wait(Stream stream, const Event& event) override { cpu_.wait(stream, event); }
  std::unique_ptr<Event> record_event(Stream stream) override { return cpu_.record_event(stream); }
  void synchronize(Stream) override {}
  std::unique_ptr<Recording> record(std::span<const Task> tasks, int64_t repeats) override {
    return std::make_unique<ShuffledRecording>(tasks, repeats, seed_);
  }
  double driver_time_us() const override { return 0; }

 private:
  CpuDevice cpu_;
  const uint64_t seed_;
};

}  // namespace headroom
