// Calls that all replicas make together on values in their devices' memory, as the nodes of a graph make
// them. Knows no graph, nor how the ranks reach each other.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/device/device.h"
#include "runtime/device/stream.h"

namespace headroom {

class Collective;

// One rank's end, for one device. All ranks make the same calls with the same sizes in the same order, one at
// a time. Calls throw CollectiveError as those of Collective do, and DeviceError when the device has failed.
class DeviceCollective {
 public:
  // A tensor of a sum. `output` may be `input` itself; otherwise they do not overlap.
  struct Term {
    const float* input = nullptr;
    float* output = nullptr;
    int64_t elements = 0;
  };

  virtual ~DeviceCollective() = default;

  // In [0, size()).
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // What it goes through: "nccl", "gpu" (that all ranks are on) or "host".
  virtual std::string_view means() const = 0;
  // How many of the ranks, this one counted, run their work on its device side by side.
  virtual int ranks_on_device() const { return 1; }
  // Whether a call may be part of what capture() captures. One that may not waits on the host for the stream
  // and for the other ranks, and is done on return.
  virtual bool can_be_captured() const = 0;

  // Each output becomes the sum of the inputs at its place over all ranks, with the same bits on every rank.
  // The tensors travel as one message.
  virtual void all_reduce_sum(std::span<const Term> terms, Stream stream) = 0;
  // In each tensor, Shard{r, size()} becomes what it is on rank r.
  virtual void all_gather(std::span<const std::span<float>> tensors, Stream stream) = 0;
  // As DeviceCaptures::capture with this rank's device, for tasks some of which are calls of this collective.
  // All ranks capture together, and launch their captures together.
  virtual std::unique_ptr<Capture> capture(Device& device, std::span<const Task> tasks, int64_t repeats) {
    return device.captures().capture(tasks, repeats);
  }
  // To be called when the stream is synchronized: throws CollectiveError when a call has failed since it was
  // queued, so that nothing that came of it is of use. Calls that are done on return have nothing to add.
  virtual void check() {}
  // Calls that are queued and not done by then fail, since a rank that hangs lets GPUs wait forever; none
  // without a value. Calls that wait on the host end by the timeout of its collective.
  virtual void set_deadline(std::optional<std::chrono::steady_clock::time_point>) {}
};

// The best that serves all ranks of `host`, which make it together: over NCCL between GPUs of their own, in
// the memory of the GPU that all threads of a process share, through host memory otherwise. Both must outlive
// it. Throws CollectiveError as `host` does, LibraryError when NCCL does not start.
std::unique_ptr<DeviceCollective> make_device_collective(Device& device, Collective& host);

}  // namespace headroom
