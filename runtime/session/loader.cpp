#include "runtime/session/loader.h"

#include <fmt/format.h>

#include <utility>

#include "base/errors.h"

namespace headroom {

std::span<std::byte> Loader::Batch::bytes_of(const Value& value, DType dtype) const {
  const int64_t offset = session_.offset_in_input_set(value);
  if (value.spec().dtype != dtype) {
    throw InvalidArgument(
        fmt::format("{} is {}, not {}", value.name(), to_string(value.spec()), to_string(dtype)));
  }
  return {base_ + offset, static_cast<size_t>(value.spec().bytes())};
}

Loader::Loader(Session& session, Fill fill, int64_t depth)
    : session_(session), device_(session.device()), fill_(std::move(fill)) {
  if (depth < 2)
    throw InvalidArgument(fmt::format("loader: {} batches at once, at least 2 are needed", depth));
  if (!session.plan().targets.doubled_inputs) {
    throw InvalidArgument("loader: the plan of the session has no doubled inputs");
  }
  for (int64_t i = 0; i < depth; ++i) buffers_.emplace_back(device_.memory(), session.plan().input_set_bytes);
  stream_ = device_.streams().new_stream();
}

Loader::~Loader() {
  stop();
  device_.streams().delete_stream(stream_);
}

void Loader::begin(int64_t first, int64_t end) {
  if (first < 0 || end < first)
    throw InvalidArgument(fmt::format("loader: batches from {} to {}", first, end));
  stop();
  stopping_ = false;
  end_ = end;
  filled_ = copied_ = done_ = first;
  failed_ = end;
  thread_ = std::thread([this] { work(); });
}

void Loader::run(int64_t steps) {
  if (steps < 1 || steps > end_ - done_) {
    throw InvalidArgument(fmt::format("loader: {} batches from {} on, there are {}", steps, done_, end_));
  }
  for (; steps > 0; --steps) run_next(steps == 1);
}

void Loader::run_next(bool is_last) {
  const Event* arrival = nullptr;
  std::exception_ptr failure;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return copied_ > done_ || failed_ <= done_; });
    if (copied_ <= done_) {
      failure = failure_;
    } else {
      arrival = arrivals_.at(done_).get();
    }
  }
  if (failure != nullptr) {
    session_.finish();
    std::rethrow_exception(failure);
  }
  const int set = static_cast<int>(done_ % 2);
  std::unique_ptr<Event> end;
  if (is_last) {
    session_.run_on_set(set, *arrival);
  } else {
    end = session_.queue_on_set(set, *arrival);
  }
  {
    const std::lock_guard lock(mutex_);
    ends_[static_cast<size_t>(set)] = std::move(end);
    ++done_;
  }
  changed_.notify_all();
}

// The two sets of the device take turns: batch n replaces n - 2, whose step must be queued.
bool Loader::can_copy() const {
  return copied_ < filled_ && copied_ - done_ < 2;
}

bool Loader::can_fill() const {
  return filled_ < failed_ && filled_ - done_ < static_cast<int64_t>(buffers_.size());
}

// If filling fails, batches filled before are still copied.
void Loader::work() {
  std::unique_lock lock(mutex_);
  for (bool is_ready = false; copied_ < failed_;) {
    changed_.wait(lock, [&] { return stopping_ || can_copy() || can_fill(); });
    if (stopping_) return;
    const bool copies = can_copy();
    const int64_t number = copies ? copied_ : filled_;
    const HostBuffer& buffer = buffers_[static_cast<size_t>(number) % buffers_.size()];
    lock.unlock();
    std::unique_ptr<Event> arrival;
    std::exception_ptr failure;
    try {
      if (!is_ready) device_.initialize();  // makes it this thread's current one
      is_ready = true;
      if (copies) {
        arrival = copy(number, buffer);
      } else {
        fill(number, buffer);
      }
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure != nullptr) {
      failure_ = failure;
      failed_ = number;
    } else if (copies) {
      arrivals_[copied_++] = std::move(arrival);
    } else {
      ++filled_;
    }
    changed_.notify_all();
  }
}

std::unique_ptr<Event> Loader::copy(int64_t number, const HostBuffer& buffer) {
  const int set = static_cast<int>(number % 2);
  if (const Event* end = ends_[static_cast<size_t>(set)].get()) device_.streams().wait(stream_, *end);
  device_.memory().copy_to_device(session_.input_set(set), buffer.data(), static_cast<int64_t>(buffer.size()),
                                  stream_);
  return device_.streams().record_event(stream_);
}

// An earlier batch used the same host memory; its copy to the device may still run.
void Loader::fill(int64_t number, const HostBuffer& buffer) {
  std::unique_ptr<Event> arrival;
  {
    const std::lock_guard lock(mutex_);
    const auto before = arrivals_.find(number - static_cast<int64_t>(buffers_.size()));
    if (before != arrivals_.end()) {
      arrival = std::move(before->second);
      arrivals_.erase(before);
    }
  }
  if (arrival != nullptr) arrival->wait();
  fill_(number, Batch(session_, buffer.data()));
}

void Loader::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  try {
    device_.streams().synchronize(stream_);
  } catch (const Error&) {  // a failed copy of a batch that is dropped
  }
  arrivals_.clear();
  ends_ = {};
  failure_ = nullptr;
  end_ = failed_ = done_;
}

}  // namespace headroom
