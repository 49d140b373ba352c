// Calls that all replicas make together on values in their devices' memory, as nodes of a graph do. Knows no
// graph and no way between ranks.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "device/device.h"
#include "device/stream.h"

namespace headroom {

class Collective;

// One rank's end, for one device. All ranks make the same calls with the same sizes in the same order, one at
// a time. Calls throw CollectiveError as those of Collective do, and DeviceError when the device has failed.
class DeviceCollective {
 public:
  // A tensor of a sum, f32 or bf16. `output` may be `input` itself; otherwise they do not overlap.
  struct Term {
    const void* input = nullptr;
    void* output = nullptr;
    int64_t elements = 0;
    DType dtype = DType::kF32;

    int64_t bytes() const { return elements * element_bytes(dtype); }
  };

  virtual ~DeviceCollective() = default;

  // In [0, size()).
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Returns the transport: "nccl", "gpu" (within the GPU of all ranks) or "host".
  virtual std::string_view transport() const = 0;
  // Returns the number of ranks that run concurrently on this rank's device, including this one.
  virtual int ranks_on_device() const { return 1; }
  // Returns true if capture() can capture calls. If not, a call waits on the host for the stream and the
  // other ranks, and is done on return.
  virtual bool can_be_captured() const = 0;

  // Each output becomes the sum of the inputs at its place over all ranks, with the same bits on every rank.
  // The tensors travel as one message. bf16 is added in f32 and rounded once; over NCCL, at each addition.
  virtual void all_reduce_sum(std::span<const Term> terms, Stream stream) = 0;
  // Sets Shard{r, size()} of each tensor to its content on rank r.
  virtual void all_gather(std::span<const std::span<float>> tensors, Stream stream) = 0;
  // Like DeviceCaptures::capture with this rank's device, for tasks that may be calls of this collective. All
  // ranks capture together, and launch their captures together.
  virtual std::unique_ptr<Capture> capture(Device& device, std::span<const Task> tasks, int64_t repeats) {
    return device.captures().capture(tasks, repeats);
  }
  // To be called when the stream is synchronized: throws CollectiveError when a queued call has failed, which
  // makes its results useless. Does nothing where calls are done on return.
  virtual void check() {}
  // Queued calls that are not done by then fail, because GPUs would wait forever for a rank that hangs;
  // nullopt means no deadline. Calls that wait on the host have the timeout of its collective.
  virtual void set_deadline(std::optional<std::chrono::steady_clock::time_point>) {}
};

// The fastest one for all ranks of `host`, which must make it together: NCCL if each has its own GPU, the
// GPU's memory if all are threads on one GPU, host memory otherwise. Both must outlive it. Throws
// CollectiveError as `host` does, LibraryError when NCCL does not start.
std::unique_ptr<DeviceCollective> make_device_collective(Device& device, Collective& host);

// Makes collectives for ranks with equally many devices each: one for each device of a rank, in their order,
// the first of which sums with the first of all other ranks, and so on. With one device each as above; ranks
// with more must be threads of one process. They sum over NCCL if every device of every rank is a GPU of its
// own, otherwise through host memory: ranks that share a GPU have one capture, which holds the work of that
// GPU only. Capturing with any of them captures the calls of all. The ranks make the calls of all their
// devices in one order.
std::vector<std::unique_ptr<DeviceCollective>> make_device_collectives(std::span<Device* const> devices,
                                                                       Collective& host);

}  // namespace headroom
