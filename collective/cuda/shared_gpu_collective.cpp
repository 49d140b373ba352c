#include "collective/cuda/shared_gpu_collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/random.h"
#include "base/shard.h"
#include "collective/gpu_collective.h"
#include "collective/join_tasks.h"

namespace headroom {
namespace {

// The location of a rank.
struct SharingGuest {
  uint64_t process = 0;
  const Device* device = nullptr;
  const std::shared_ptr<cuda::SharedGpuGroup>* group = nullptr;  // rank 0's
};

}  // namespace

std::unique_ptr<DeviceCollective> make_shared_gpu_collective(Device& device, Collective& host) {
  auto group = std::make_shared<cuda::SharedGpuGroup>();
  group->members.resize(static_cast<size_t>(host.size()));
  const SharingGuest own{process_nonce(), &device, &group};
  bool all_here = device.kernel_target().gpu != nullptr && host.size() <= cuda::kMaxSharingRanks;
  std::shared_ptr<cuda::SharedGpuGroup> common;
  for (int root = 0; root < host.size(); ++root) {
    SharingGuest guest = own;
    broadcast_value(host, guest, root);
    all_here = all_here && guest.process == own.process && guest.device == own.device;
    if (root == 0 && all_here) common = *guest.group;
  }
  host.barrier();  // rank 0's pointer has been read
  if (!all_here) return nullptr;
  return std::make_unique<cuda::SharedGpuCollective>(device, host, std::move(common));
}

namespace cuda {
namespace {

class SharedCapture final : public Capture {
 public:
  SharedCapture(SharedGpuCollective& rank, std::shared_ptr<Capture> capture)
      : rank_(rank), capture_(std::move(capture)) {}

  void launch(Stream stream) override {
    rank_.together(stream, [&](Stream on) { capture_->launch(on); });
  }

 private:
  SharedGpuCollective& rank_;
  const std::shared_ptr<Capture> capture_;
};

std::string describe(const SharedGpuGroup::Member& member) {
  int64_t elements = 0;
  for (const SharedGpuGroup::Tensor& tensor : member.tensors) elements += tensor.elements;
  return fmt::format("{} of {} elements in {} tensors", member.gathers ? "all_gather" : "all_reduce_sum",
                     elements, member.tensors.size());
}

}  // namespace

void SharedGpuCollective::together(Stream stream, const std::function<void(Stream)>& work) {
  own().here = device_.streams().record_event(stream);
  host_.barrier();
  if (rank() == 0) {
    group_->failure = nullptr;
    try {
      for (const SharedGpuGroup::Member& member : group_->members)
        device_.streams().wait(stream, *member.here);
      work(stream);
      group_->done = device_.streams().record_event(stream);
    } catch (...) {
      group_->failure = std::current_exception();
    }
  }
  host_.barrier();
  if (group_->failure != nullptr) std::rethrow_exception(group_->failure);
  if (rank() != 0) device_.streams().wait(stream, *group_->done);
}

void SharedGpuCollective::all_reduce_sum(std::span<const Term> terms, Stream stream) {
  own().gathers = false;
  own().tensors.assign(terms.begin(), terms.end());
  make_call(stream);
}

void SharedGpuCollective::all_gather(std::span<const std::span<float>> tensors, Stream stream) {
  own().gathers = true;
  own().tensors.clear();
  for (const std::span<float> tensor : tensors) {
    own().tensors.push_back({tensor.data(), tensor.data(), std::ssize(tensor)});
  }
  make_call(stream);
}

// While tasks are captured, rank 0 calls those of one rank after another, and then queues their requests.
void SharedGpuCollective::make_call(Stream stream) {
  if (group_->is_capturing) return;
  together(stream, [this](Stream on) { queue_calls(on); });
}

void SharedGpuCollective::require_equal_calls() const {
  const SharedGpuGroup::Member& first = group_->members.front();
  for (int other = 1; other < size(); ++other) {
    const SharedGpuGroup::Member& member = group_->members[static_cast<size_t>(other)];
    const bool alike = member.gathers == first.gathers &&
                       std::ranges::equal(member.tensors, first.tensors, {}, &SharedGpuGroup::Tensor::bytes,
                                          &SharedGpuGroup::Tensor::bytes);
    if (alike) continue;
    throw CollectiveError(
        rank(), "collective on a shared GPU",
        fmt::format("rank 0 called {}, rank {} called {}", describe(first), other, describe(member)));
  }
}

void SharedGpuCollective::queue_calls(Stream stream) {
  require_equal_calls();
  const std::vector<SharedGpuGroup::Member>& members = group_->members;
  const size_t count = members.front().tensors.size(), ranks = members.size();
  std::vector<SharedTensor> sums;
  if (!members.front().gathers) {
    for (size_t i = 0; i < count; ++i) {
      SharedTensor sum{.elements = members.front().tensors[i].elements,
                       .dtype = members.front().tensors[i].dtype};
      for (size_t rank = 0; rank < ranks; ++rank) {
        sum.inputs[rank] = members[rank].tensors[i].input;
        sum.outputs[rank] = members[rank].tensors[i].output;
      }
      if (sum.elements > 0) sums.push_back(sum);
    }
    queue_shared_sums(sums, size(), size(), device_.kernel_target().gpu->multiprocessors(),
                      stream_of(stream));
    return;
  }
  // A shard of one rank to all others: a sum of one.
  for (size_t i = 0; i < count; ++i) {
    for (size_t owner = 0; owner < ranks; ++owner) {
      const int64_t elements = members.front().tensors[i].elements;
      const Shard shard{static_cast<int>(owner), size()};
      SharedTensor copy{.elements = shard.size(elements)};
      copy.inputs[0] = static_cast<const float*>(members[owner].tensors[i].input) + shard.begin(elements);
      int to = 0;
      for (size_t rank = 0; rank < ranks; ++rank) {
        if (rank != owner)
          copy.outputs[to++] = static_cast<float*>(members[rank].tensors[i].output) + shard.begin(elements);
      }
      if (copy.elements > 0) sums.push_back(copy);
    }
  }
  queue_shared_sums(sums, 1, size() - 1, device_.kernel_target().gpu->multiprocessors(), stream_of(stream));
}

std::unique_ptr<Capture> SharedGpuCollective::capture(Device&, std::span<const Task> tasks, int64_t repeats) {
  own().tasks = tasks;
  own().repeats = repeats;
  together({}, [&](Stream) {
    std::vector<std::span<const Task>> all;
    for (const SharedGpuGroup::Member& member : group_->members) {
      if (member.repeats != repeats) throw InvalidArgument("ranks capture different numbers of repetitions");
      all.push_back(member.tasks);
    }
    const std::vector<Task> joined = join_tasks(all, [this](Stream stream) { queue_calls(stream); });
    struct Capturing {
      bool& flag;
      explicit Capturing(bool& on) : flag(on) { flag = true; }
      ~Capturing() { flag = false; }
    } const capturing(group_->is_capturing);
    group_->capture = device_.captures().capture(joined, repeats);
  });
  return std::make_unique<SharedCapture>(*this, group_->capture);
}

}  // namespace cuda
}  // namespace headroom
