#include "collective/in_process/in_process_collective.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/errors.h"
#include "collective/collective_call.h"

namespace headroom {
namespace {

// 4 KiB of sums stay in the first-level cache while one rank after the other is added.
constexpr int64_t kBlockFloats = 1024;

// The call and the memory of one rank; one of the spans is empty.
struct Request {
  CollectiveCall call;
  std::span<float> values;
  std::span<std::byte> bytes;
};

// The meeting point of the ranks. A round is one call of all ranks: they arrive, each does its share on the
// memory of all, and none returns before the last is done, so no rank's memory is accessed after its call
// returned.
class Group {
 public:
  Group(int size, std::chrono::milliseconds timeout) : timeout_(timeout), members_(size) {}

  int size() const { return static_cast<int>(members_.size()); }

  void make_call(int rank, const Request& request);
  void leave(int rank) noexcept;

 private:
  struct Member {
    Request request;  // the current round's once it has arrived, else an earlier one's
    bool has_arrived = false;
  };

  bool is_broken() const { return dead_rank_.has_value() || !late_.empty(); }
  std::string why_broken() const { return dead_rank_ ? fmt::format("rank {} has died", *dead_rank_) : late_; }
  std::string late_ranks_text() const;
  std::string find_mismatch() const;
  void do_share(int rank, const CollectiveCall& call);
  void sum_share(int rank, int64_t count);

  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member> members_;  // by rank; requests are read without the lock while ranks do their shares
  int arrived_ = 0;              // ranks that wait for the current round to begin
  int done_ = 0;                 // ranks that have done their share of the current round
  int64_t begun_rounds_ = 0;
  int64_t done_rounds_ = 0;
  std::string mismatch_;  // in the last round that began; empty if all ranks agreed
  // The reason that the group is broken permanently: the first cause stays, later ones are dropped.
  std::optional<int> dead_rank_;
  std::string late_;
};

void Group::make_call(int rank, const Request& request) {
  const auto fail = [&](const std::string& cause) {
    throw CollectiveError(rank, request.call.name(), cause);
  };
  std::unique_lock lock(mutex_);
  if (is_broken()) fail(why_broken());
  members_[rank] = {request, true};
  const int64_t begun = begun_rounds_;
  if (++arrived_ == size()) {
    mismatch_ = find_mismatch();
    for (Member& member : members_) member.has_arrived = false;
    arrived_ = 0;
    ++begun_rounds_;
    changed_.notify_all();
  } else if (!changed_.wait_for(lock, timeout_, [&] { return begun_rounds_ != begun || is_broken(); })) {
    late_ = late_ranks_text();
    changed_.notify_all();
  }
  // A round that has begun is finished even if a faster rank has died since.
  if (begun_rounds_ == begun) fail(why_broken());
  // No rank overwrites it before this rank arrives at the next round.
  if (!mismatch_.empty()) fail(mismatch_);

  lock.unlock();
  do_share(rank, request.call);
  lock.lock();

  const int64_t done = done_rounds_;
  if (++done_ == size()) {
    done_ = 0;
    ++done_rounds_;
    changed_.notify_all();
  } else {
    // Waits with no timeout: all ranks are doing work that cannot fail, and returning early would let them
    // write to memory that the caller may reuse.
    changed_.wait(lock, [&] { return done_rounds_ != done; });
  }
}

void Group::leave(int rank) noexcept {
  const std::lock_guard lock(mutex_);
  if (is_broken()) return;
  dead_rank_ = rank;
  changed_.notify_all();
}

std::string Group::late_ranks_text() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (!members_[rank].has_arrived) ranks.push_back(rank);
  }
  return fmt::format("rank{} {} did not arrive within {} ms", ranks.size() == 1 ? "" : "s",
                     fmt::join(ranks, ", "), timeout_.count());
}

std::string Group::find_mismatch() const {
  const CollectiveCall& first = members_[0].request.call;
  for (int rank = 1; rank < size(); ++rank) {
    const CollectiveCall& other = members_[rank].request.call;
    if (other != first) return mismatch_text(first, rank, other);
  }
  return {};
}

void Group::do_share(int rank, const CollectiveCall& call) {
  switch (call.kind) {
    case CollectiveCall::Kind::kAllReduceSum:
      sum_share(rank, call.count);
      break;
    case CollectiveCall::Kind::kBroadcast:
      if (rank != call.root) {
        std::ranges::copy(members_[call.root].request.bytes, members_[rank].request.bytes.begin());
      }
      break;
    case CollectiveCall::Kind::kBarrier:
      break;
  }
}

// Each rank sums its own part of the elements and writes it to all ranks: no element is read or written by
// two threads, and no buffer is needed.
void Group::sum_share(int rank, int64_t count) {
  const int64_t begin = count * rank / size();
  const int64_t end = count * (rank + 1) / size();
  std::array<float, kBlockFloats> sums;
  for (int64_t block = begin; block < end; block += kBlockFloats) {
    const int64_t length = std::min(kBlockFloats, end - block);
    std::copy_n(&members_[0].request.values[block], length, sums.data());
    for (int other = 1; other < size(); ++other) {
      const float* values = &members_[other].request.values[block];
      for (int64_t i = 0; i < length; ++i) sums[i] += values[i];
    }
    for (const Member& member : members_) {
      std::copy_n(sums.data(), length, &member.request.values[block]);
    }
  }
}

class InProcessCollective final : public Collective {
 public:
  InProcessCollective(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  ~InProcessCollective() override { group_->leave(rank_); }
  InProcessCollective(const InProcessCollective&) = delete;
  InProcessCollective& operator=(const InProcessCollective&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  void all_reduce_sum(std::span<float> values) override {
    const CollectiveCall call = {.kind = CollectiveCall::Kind::kAllReduceSum, .count = std::ssize(values)};
    group_->make_call(rank_, {.call = call, .values = values, .bytes = {}});
  }

  void broadcast(std::span<std::byte> bytes, int root) override {
    check_root(root, size());
    const CollectiveCall call = {
        .kind = CollectiveCall::Kind::kBroadcast, .count = std::ssize(bytes), .root = root};
    group_->make_call(rank_, {.call = call, .values = {}, .bytes = bytes});
  }

  void barrier() override { group_->make_call(rank_, {}); }

 private:
  const std::shared_ptr<Group> group_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Collective>> make_in_process_group(int size, std::chrono::milliseconds timeout) {
  if (size < 1) throw InvalidArgument(fmt::format("a group of {} ranks: at least one is needed", size));
  check_collective_timeout(timeout);
  const auto group = std::make_shared<Group>(size, timeout);
  std::vector<std::unique_ptr<Collective>> collectives;
  for (int rank = 0; rank < size; ++rank) {
    collectives.push_back(std::make_unique<InProcessCollective>(group, rank));
  }
  return collectives;
}

}  // namespace headroom
