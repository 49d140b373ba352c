// A CPU whose captures run their tasks in a random order that the tasks allow, as a GPU with parallel
// branches may do.
#pragma once

#include <memory>
#include <vector>

#include "base/random.h"
#include "device/host/cpu_device.h"

namespace headroom {

class ShuffledCapture final : public Capture {
 public:
  ShuffledCapture(std::span<const Task> tasks, int64_t repeats, uint64_t seed)
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

class ShuffledCaptures final : public DeviceCaptures {
 public:
  explicit ShuffledCaptures(uint64_t seed) : seed_(seed) {}
  std::unique_ptr<Capture> capture(std::span<const Task> tasks, int64_t repeats) override {
    return std::make_unique<ShuffledCapture>(tasks, repeats, seed_);
  }
  bool call_tasks() const override { return true; }

 private:
  const uint64_t seed_;
};

class ShuffledDevice final : public Device {
 public:
  explicit ShuffledDevice(uint64_t seed) : captures_(seed) {}

  const DeviceInfo& info() const override { return cpu_.info(); }
  void initialize() override {}
  DeviceMemory& memory() override { return cpu_.memory(); }
  DeviceStreams& streams() override { return cpu_.streams(); }
  DeviceLibraries& libraries() override { return cpu_.libraries(); }
  DeviceCaptures& captures() override { return captures_; }
  KernelTarget kernel_target() override { return {}; }

 private:
  CpuDevice cpu_;
  ShuffledCaptures captures_;
};

}  // namespace headroom
