// Captures for devices whose work runs on the host: a launch calls every task. Knows no device.
#pragma once

#include <memory>
#include <span>

#include "device/device_captures.h"

namespace headroom {

class HostCaptures final : public DeviceCaptures {
 public:
  // With one thread a launch calls the tasks in the given order. With more, including the caller, it calls
  // unordered tasks concurrently and returns when all are done; once a task throws, no further one begins,
  // and launch() throws the exception of the first of them in order.
  explicit HostCaptures(int threads = 1) : threads_(threads) {}

  std::unique_ptr<Capture> capture(std::span<const Task> tasks, int64_t repeats) override;
  bool call_tasks() const override { return true; }

 private:
  const int threads_;
};

}  // namespace headroom
