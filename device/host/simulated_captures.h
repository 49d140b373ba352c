// Captures of a simulated GPU: a launch calls every task in the order given, those with a lane of their own
// on streams of their own, as a real one runs tasks side by side that nothing orders. Knows no device.
#pragma once

#include <memory>
#include <span>

#include "device/device_captures.h"
#include "device/device_streams.h"

namespace headroom {

class SimulatedCaptures final : public DeviceCaptures {
 public:
  // `streams` must outlive this and its captures.
  explicit SimulatedCaptures(DeviceStreams& streams) : streams_(streams) {}

  std::unique_ptr<Capture> capture(std::span<const Task> tasks, int64_t repeats) override;
  bool call_tasks() const override { return true; }

 private:
  DeviceStreams& streams_;
};

}  // namespace headroom
