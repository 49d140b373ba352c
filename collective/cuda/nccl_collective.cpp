#include "collective/cuda/nccl_collective.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/random.h"
#include "base/shard.h"
#include "collective/gpu_collective.h"
#include "device/cuda/check.h"
#include "device/cuda/cuda_gpu.h"
#include "device/cuda/current_device.h"
#include "device/cuda/visible_gpus.h"

namespace headroom {
namespace {

// The data that a rank shows to join NCCL.
struct NcclGuest {
  char gpu[384] = "";  // host and PCI bus id: NCCL takes a GPU once; empty without a GPU or without NCCL
};

// The data that rank 0 sends to all ranks.
struct NcclInvitation {
  ncclUniqueId id{};
  uint64_t process = 0;
  const std::shared_ptr<cuda::NcclNeighbors>* neighbors = nullptr;  // for threads of that process alone
};

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

bool all_on_gpus_of_their_own(Collective& host, const std::string& own) {
  std::vector<std::string> gpus;
  bool all_own = true;
  for (int root = 0; root < host.size(); ++root) {
    NcclGuest guest;
    if (root == host.rank()) own.copy(guest.gpu, sizeof guest.gpu - 1);
    broadcast_value(host, guest, root);
    const std::string gpu = guest.gpu;
    all_own = all_own && !gpu.empty() && std::find(gpus.begin(), gpus.end(), gpu) == gpus.end();
    gpus.push_back(gpu);
  }
  return all_own;
}

}  // namespace

std::unique_ptr<DeviceCollective> make_gpu_collective(Device& device, Collective& host) {
  const bool is_gpu = device.kernel_target().gpu != nullptr;
  const cuda::Nccl* const nccl = is_gpu ? cuda::Nccl::instance() : nullptr;
  const int ordinal = is_gpu ? device.kernel_target().gpu->ordinal() : 0;
  const std::string own =
      nccl == nullptr ? std::string() : fmt::format("{} {}", host_name(), cuda::pci_bus_id_of(ordinal));
  if (!all_on_gpus_of_their_own(host, own)) return nullptr;

  device.initialize();
  NcclInvitation invitation;
  std::shared_ptr<cuda::NcclNeighbors> neighbors;
  if (host.rank() == 0) {
    neighbors = std::make_shared<cuda::NcclNeighbors>();
    nccl->check(nccl->get_unique_id(&invitation.id), "ncclGetUniqueId");
    invitation.process = process_nonce();
    invitation.neighbors = &neighbors;
  }
  broadcast_value(host, invitation, 0);
  if (host.rank() != 0) {
    const bool is_neighbor = invitation.process == process_nonce();
    neighbors = is_neighbor ? *invitation.neighbors : std::make_shared<cuda::NcclNeighbors>();
  }
  host.barrier();  // rank 0's pointer has been read
  return std::make_unique<cuda::NcclCollective>(*nccl, ordinal, invitation.id, host.rank(), host.size(),
                                                std::move(neighbors), cuda::PeerSums::make(ordinal, host));
}

namespace cuda {
namespace {

// Interval between checks of the GPU's work: far below any timeout, and too rare to cost anything.
constexpr std::chrono::milliseconds kLookInterval(20);
// Time that a dying rank waits for its neighbors to stop using its memory.
constexpr std::chrono::seconds kLettingGo(5);

}  // namespace

NcclCollective::NcclCollective(const Nccl& nccl, int ordinal, const ncclUniqueId& id, int rank, int size,
                               std::shared_ptr<NcclNeighbors> neighbors, std::unique_ptr<PeerSums> peers)
    : nccl_(nccl),
      ordinal_(ordinal),
      rank_(rank),
      size_(size),
      neighbors_(std::move(neighbors)),
      peers_(std::move(peers)) {
  nccl_.check(nccl_.init_rank(&communicator_, size_, id, rank_), "ncclCommInitRank");
  const std::lock_guard lock(neighbors_->mutex);
  ++neighbors_->members;
  watcher_ = std::thread([this] { watch(); });
}

NcclCollective::~NcclCollective() {
  {
    const std::lock_guard lock(neighbors_->mutex);
    ends_ = true;
    if (neighbors_->dead_rank < 0) neighbors_->dead_rank = rank_;
    neighbors_->changed.notify_all();
  }
  watcher_.join();
  leave();
  {
    // The GPUs of those that go on may be reading this one's memory, which is about to go.
    std::unique_lock lock(neighbors_->mutex);
    neighbors_->changed.wait_for(lock, kLettingGo, [&] { return neighbors_->members == 0; });
  }
  give_up("destroyed");
}

void NcclCollective::leave() {
  const std::lock_guard lock(neighbors_->mutex);
  if (std::exchange(has_left_, true)) return;
  --neighbors_->members;
  neighbors_->changed.notify_all();
}

// Aborting is the only way out of a kernel that waits for a GPU that will not answer; it makes the stream's
// work end as if it had been done. It returns once all recordings with calls in them are destroyed, which
// their owner does when it sees that the communicator is gone: so nothing is locked meanwhile.
void NcclCollective::give_up(const std::string& cause) {
  ncclComm_t communicator = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) return;
    broken_ = cause;
    communicator = std::exchange(communicator_, nullptr);
  }
  if (peers_ != nullptr) peers_->abort();
  const CurrentDevice current(ordinal_);
  nccl_.abort(communicator);
}

void NcclCollective::watch() {
  wait_for_the_end();
  leave();
}

void NcclCollective::wait_for_the_end() {
  for (;;) {
    {
      std::unique_lock lock(neighbors_->mutex);
      neighbors_->changed.wait_for(lock, kLookInterval,
                                    [this] { return ends_ || neighbors_->dead_rank >= 0; });
      if (ends_) return;
      if (neighbors_->dead_rank >= 0) {
        const std::string cause = fmt::format("rank {} has died", neighbors_->dead_rank);
        lock.unlock();
        return give_up(cause);
      }
    }
    ncclResult_t failure = ncclSuccess;
    bool is_late = false;
    {
      const std::lock_guard lock(mutex_);
      nccl_.get_async_error(communicator_, &failure);
      is_late = deadline_ && std::chrono::steady_clock::now() > *deadline_;
    }
    if (is_late) return give_up("the ranks' GPUs did not finish in time");
    if (failure != ncclSuccess && failure != ncclInProgress) {
      return give_up(fmt::format("NCCL failed: {}", nccl_.describe(failure)));
    }
  }
}

void NcclCollective::check() {
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) throw CollectiveError(rank_, "collective on GPUs", broken_);
}

void NcclCollective::set_deadline(std::optional<std::chrono::steady_clock::time_point> deadline) {
  const std::lock_guard lock(mutex_);
  deadline_ = deadline;
}

// Calls with few bytes go to the peers' kernel, if there is one. Between start and end of a group NCCL
// collects calls and launches them as one kernel.
template <typename QueueToPeers, typename Queue>
void NcclCollective::queue_as_one(const char* call, const QueueToPeers& queue_to_peers, const Queue& queue) {
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) throw CollectiveError(rank_, call, broken_);
  const CurrentDevice current(ordinal_);
  if (peers_ != nullptr && queue_to_peers(*peers_)) return;
  nccl_.check(nccl_.group_start(), "ncclGroupStart");
  try {
    queue();
  } catch (...) {
    nccl_.group_end();
    throw;
  }
  nccl_.check(nccl_.group_end(), "ncclGroupEnd");
}

// NCCL's rings and trees sum each element once, along one way, and send the result to all: the same bits
// everywhere. Other numbers of ranks, or another machine, may give another order.
void NcclCollective::all_reduce_sum(std::span<const Term> terms, Stream stream) {
  const auto to_peers = [&](PeerSums& peers) { return peers.all_reduce_sum(terms, stream_of(stream)); };
  queue_as_one("all_reduce_sum", to_peers, [&] {
    for (const Term& term : terms) {
      if (term.elements == 0) continue;
      const ncclDataType_t dtype = term.dtype == DType::kBf16 ? ncclBfloat16 : ncclFloat32;
      nccl_.check(nccl_.all_reduce(term.input, term.output, static_cast<size_t>(term.elements), dtype,
                                   ncclSum, communicator_, stream_of(stream)),
                  "ncclAllReduce");
    }
  });
}

// Shards differ in size and begin at any element: broadcasts each in place, because ncclAllGather needs equal
// ones.
void NcclCollective::all_gather(std::span<const std::span<float>> tensors, Stream stream) {
  const auto to_peers = [&](PeerSums& peers) { return peers.all_gather(tensors, stream_of(stream)); };
  queue_as_one("all_gather", to_peers, [&] {
    for (const std::span<float> tensor : tensors) {
      for (int owner = 0; owner < size_; ++owner) {
        const Shard shard{owner, size_};
        const int64_t elements = shard.size(std::ssize(tensor));
        if (elements == 0) continue;
        float* const begin = tensor.data() + shard.begin(std::ssize(tensor));
        nccl_.check(nccl_.broadcast(begin, begin, static_cast<size_t>(elements), ncclFloat32, owner,
                                    communicator_, stream_of(stream)),
                    "ncclBroadcast");
      }
    }
  });
}

}  // namespace cuda
}  // namespace headroom
