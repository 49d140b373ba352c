// One rank's GPU in a group of them, over NCCL. Knows no graph.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "collective/collective.h"
#include "collective/cuda/nccl_library.h"
#include "collective/cuda/peer_sums.h"
#include "collective/device_collective.h"

namespace headroom::cuda {

// The ranks of a group that are threads of this process: a GPU that waits for a dead rank never stops by
// itself, and neither does its thread.
struct NcclNeighbors {
  std::mutex mutex;
  std::condition_variable changed;
  int dead_rank = -1;
  int members = 0;  // neither destroyed nor with an aborted communicator
};

class NcclCollective final : public DeviceCollective {
 public:
  // See make_gpu_collective. The device must be the calling thread's current one. `peers`, if not null,
  // handles calls with few bytes.
  NcclCollective(const Nccl& nccl, int ordinal, const ncclUniqueId& id, int rank, int size,
                 std::shared_ptr<NcclNeighbors> neighbors, std::unique_ptr<PeerSums> peers);
  ~NcclCollective() override;
  NcclCollective(const NcclCollective&) = delete;
  NcclCollective& operator=(const NcclCollective&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view transport() const override { return "nccl"; }
  bool can_be_captured() const override { return true; }
  void all_reduce_sum(std::span<const Term> terms, Stream stream) override;
  void all_gather(std::span<const std::span<float>> tensors, Stream stream) override;
  void check() override;
  void set_deadline(std::optional<std::chrono::steady_clock::time_point> deadline) override;

 private:
  template <typename QueueToPeers, typename Queue>
  void queue_as_one(const char* call, const QueueToPeers& queue_to_peers, const Queue& queue);
  void watch();
  void wait_for_the_end();
  void leave();
  void give_up(const std::string& cause);

  const Nccl& nccl_;
  const int ordinal_, rank_, size_;
  const std::shared_ptr<NcclNeighbors> neighbors_;
  const std::unique_ptr<PeerSums> peers_;
  std::mutex mutex_;  // guards the three below: NCCL must not be called while a communicator is being aborted
  ncclComm_t communicator_ = nullptr;  // null once aborted
  std::string broken_;                 // why
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  bool ends_ = false, has_left_ = false;  // under the neighbors' lock
  std::thread watcher_;
};

}  // namespace headroom::cuda
