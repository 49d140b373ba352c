// A collective for any device through host memory: for the CPU, simulated GPUs, GPUs without NCCL, and GPUs
// with different numbers of replicas. Knows no driver.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collective/collective.h"
#include "collective/device_collective.h"
#include "device/device.h"
#include "device/host_buffer.h"

namespace headroom {

class StagedCollective final : public DeviceCollective {
 public:
  // Both must outlive it. Takes host memory for the largest call so far, from `device`.
  StagedCollective(Device& device, Collective& host) : device_(device), host_(host) {}

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  std::string_view transport() const override { return "host"; }
  bool can_be_captured() const override { return device_.captures().call_tasks(); }
  void all_reduce_sum(std::span<const Term> terms, Stream stream) override;
  void all_gather(std::span<const std::span<float>> tensors, Stream stream) override;

 private:
  std::span<float> staging(int64_t elements);

  Device& device_;
  Collective& host_;
  std::optional<HostBuffer> staging_;
  std::vector<uint16_t> halves_;  // values of one tensor
};

}  // namespace headroom
