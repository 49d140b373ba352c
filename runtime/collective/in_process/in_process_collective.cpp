#include "runtime/collective/in_process/in_process_collective.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/base/errors.h"

namespace headroom {
namespace {

// Keeps the deadline inside the range of the clock, whatever the caller takes for "forever".
constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(365 * 24);

// 4 KiB of sums stay in the first-level cache while one rank after the other is added.
constexpr int64_t kBlockFloats = 1024;

enum class Kind : uint8_t { kAllReduceSum, kBroadcast, kBarrier };

// What the calls of all ranks have to agree on.
struct Call {
  Kind kind = Kind::kBarrier;
  int64_t count = 0;  // floats of a sum, bytes of a broadcast
  int root = 0;       // of a broadcast
  bool operator==(const Call&) const = default;
};

// The call and the memory of one rank; one of the spans is empty.
struct Request {
  Call call;
  std::span<float> values;
  std::span<std::byte> bytes;
};

const char* name_of(const Call& call) {
  switch (call.kind) {
    case Kind::kAllReduceSum:
      return "all_reduce_sum";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kBarrier:
      break;
  }
  return "barrier";
}

std::string describe(const Call& call) {
  switch (call.kind) {
    case Kind::kAllReduceSum:
      return fmt::format("all_reduce_sum of {} floats", call.count);
    case Kind::kBroadcast:
      return fmt::format("broadcast of {} bytes from rank {}", call.count, call.root);
    case Kind::kBarrier:
      break;
  }
  return "barrier";
}

// Where the ranks meet. A round is one call of all ranks: they come, each does its share on the memory of
// all, and none leaves before the last is done, so that nobody's memory is touched once its call returned.
class Group {
 public:
  Group(int size, std::chrono::milliseconds timeout) : timeout_(timeout), members_(size) {}

  int size() const { return static_cast<int>(members_.size()); }

  void make_call(int rank, const Request& request);
  void leave(int rank) noexcept;

 private:
  struct Member {
    Request request;  // of the current round once it has come, of an earlier one before
    bool has_come = false;
  };

  bool is_broken() const { return dead_rank_.has_value() || !late_.empty(); }
  std::string why_broken() const { return dead_rank_ ? fmt::format("rank {} has died", *dead_rank_) : late_; }
  std::string describe_late() const;
  std::string find_mismatch() const;
  void do_share(int rank, const Call& call);
  void sum_share(int rank, int64_t count);

  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member> members_;  // by rank; requests are read without the lock while a round is at work
  int come_ = 0;                 // ranks that wait for the current round to begin
  int done_ = 0;                 // ranks that have done their share of the current round
  int64_t begun_rounds_ = 0;
  int64_t done_rounds_ = 0;
  std::string mismatch_;  // of the round begun last; empty when all ranks agreed
  // Why the group is given up for good: the first cause stays, those that follow from it are not kept.
  std::optional<int> dead_rank_;
  std::string late_;
};

void Group::make_call(int rank, const Request& request) {
  const auto fail = [&](const std::string& cause) {
    throw CollectiveError(rank, name_of(request.call), cause);
  };
  std::unique_lock lock(mutex_);
  if (is_broken()) fail(why_broken());
  members_[rank] = {request, true};
  const int64_t begun = begun_rounds_;
  if (++come_ == size()) {
    mismatch_ = find_mismatch();
    for (Member& member : members_) member.has_come = false;
    come_ = 0;
    ++begun_rounds_;
    changed_.notify_all();
  } else if (!changed_.wait_for(lock, timeout_, [&] { return begun_rounds_ != begun || is_broken(); })) {
    late_ = describe_late();
    changed_.notify_all();
  }
  // A round that has begun goes its way even if a rank that was faster has died since.
  if (begun_rounds_ == begun) fail(why_broken());
  // Nobody can overwrite it before this rank comes to the next round.
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
    // Without a timeout: all ranks are at work here, on nothing that could fail, and leaving early would let
    // them write to memory that the caller has back.
    changed_.wait(lock, [&] { return done_rounds_ != done; });
  }
}

void Group::leave(int rank) noexcept {
  const std::lock_guard lock(mutex_);
  if (is_broken()) return;
  dead_rank_ = rank;
  changed_.notify_all();
}

std::string Group::describe_late() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (!members_[rank].has_come) ranks.push_back(rank);
  }
  return fmt::format("rank{} {} did not come within {} ms", ranks.size() == 1 ? "" : "s",
                     fmt::join(ranks, ", "), timeout_.count());
}

std::string Group::find_mismatch() const {
  const Call& first = members_[0].request.call;
  for (int rank = 1; rank < size(); ++rank) {
    const Call& other = members_[rank].request.call;
    if (other != first) {
      return fmt::format("rank 0 called {}, rank {} called {}", describe(first), rank, describe(other));
    }
  }
  return {};
}

void Group::do_share(int rank, const Call& call) {
  switch (call.kind) {
    case Kind::kAllReduceSum:
      sum_share(rank, call.count);
      break;
    case Kind::kBroadcast:
      if (rank != call.root) {
        std::ranges::copy(members_[call.root].request.bytes, members_[rank].request.bytes.begin());
      }
      break;
    case Kind::kBarrier:
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
    const Call call = {.kind = Kind::kAllReduceSum, .count = std::ssize(values)};
    group_->make_call(rank_, {.call = call, .values = values, .bytes = {}});
  }

  void broadcast(std::span<std::byte> bytes, int root) override {
    if (root < 0 || root >= size()) {
      throw InvalidArgument(fmt::format("broadcast from rank {} in a group of {}", root, size()));
    }
    const Call call = {.kind = Kind::kBroadcast, .count = std::ssize(bytes), .root = root};
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
  if (timeout < std::chrono::milliseconds(1) || timeout > kLongestTimeout) {
    throw InvalidArgument(fmt::format("a timeout of {} ms: must be from 1 ms to 1 year", timeout.count()));
  }
  const auto group = std::make_shared<Group>(size, timeout);
  std::vector<std::unique_ptr<Collective>> collectives;
  for (int rank = 0; rank < size; ++rank) {
    collectives.push_back(std::make_unique<InProcessCollective>(group, rank));
  }
  return collectives;
}

}  // namespace headroom
