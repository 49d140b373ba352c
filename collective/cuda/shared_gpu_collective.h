// A collective for replicas that are threads of one process on one GPU, as virtual devices are: sums on the
// GPU, and the work of all replicas as one capture. Knows no graph and no kernel of an op.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "collective/collective.h"
#include "collective/cuda/shared_gpu_sums.h"
#include "collective/device_collective.h"
#include "device/cuda/cuda_gpu.h"

namespace headroom::cuda {

// State shared by the ranks. Each rank writes its own member before a barrier. Between that barrier and the
// next, rank 0 reads all members and writes the rest; then the others read it.
struct SharedGpuGroup {
  using Tensor = DeviceCollective::Term;
  struct Member {
    bool gathers = false;  // true if its call gathers; false if it sums
    std::vector<Tensor> tensors;
    std::span<const Task> tasks;
    int64_t repeats = 0;
    std::unique_ptr<Event> here;  // after the earlier work of its stream
  };
  std::vector<Member> members;
  bool is_capturing = false;  // rank 0 calls the tasks of all
  std::shared_ptr<Capture> capture;
  std::unique_ptr<Event> done;
  std::exception_ptr failure;
};

class SharedGpuCollective final : public DeviceCollective {
 public:
  SharedGpuCollective(Device& device, Collective& host, std::shared_ptr<SharedGpuGroup> group)
      : device_(device), host_(host), group_(std::move(group)) {}

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  std::string_view transport() const override { return "gpu"; }
  int ranks_on_device() const override { return size(); }
  bool can_be_captured() const override { return true; }
  void all_reduce_sum(std::span<const Term> terms, Stream stream) override;
  void all_gather(std::span<const std::span<float>> tensors, Stream stream) override;
  std::unique_ptr<Capture> capture(Device& device, std::span<const Task> tasks, int64_t repeats) override;

  // Rank 0 calls `work` after the present work of all ranks' streams, and all streams wait for it. If it
  // throws, all ranks throw.
  void together(Stream stream, const std::function<void(Stream)>& work);

 private:
  SharedGpuGroup::Member& own() { return group_->members[static_cast<size_t>(rank())]; }
  void make_call(Stream stream);
  void require_equal_calls() const;
  void queue_calls(Stream stream);

  Device& device_;
  Collective& host_;
  const std::shared_ptr<SharedGpuGroup> group_;
};

}  // namespace headroom::cuda
