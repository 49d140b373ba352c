#include "device/host/host_captures.h"

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace headroom {
namespace {

class InOrderCapture final : public Capture {
 public:
  InOrderCapture(std::span<const Task> tasks, int64_t repeats) : repeats_(repeats) {
    for (const Task& task : tasks) runs_.push_back(task.run);
  }

  void launch(Stream stream) override {
    for (int64_t i = 0; i < repeats_; ++i) {
      for (const auto& run : runs_) run(stream);
    }
  }

 private:
  std::vector<std::function<void(Stream)>> runs_;
  const int64_t repeats_;
};

class ThreadedCapture final : public Capture {
 public:
  ThreadedCapture(std::span<const Task> tasks, int64_t repeats, int threads)
      : tasks_(tasks.begin(), tasks.end()), repeats_(repeats), followers_(tasks.size()) {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      for (const int other : tasks_[i].after) followers_[static_cast<size_t>(other)].push_back(i);
    }
    waits_for_.resize(tasks_.size());
    ready_.reserve(tasks_.size());
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }

  ~ThreadedCapture() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  // Runs repetitions in sequence: dependencies on the previous repetition are then done.
  void launch(Stream stream) override {
    for (int64_t i = 0; i < repeats_; ++i) run_once(stream);
  }

 private:
  void run_once(Stream stream) {
    std::unique_lock lock(mutex_);
    stream_ = stream;
    failure_ = nullptr;
    left_ = tasks_.size();
    ready_.clear();
    // Taken from the back: the first in order comes first.
    for (size_t i = tasks_.size(); i-- > 0;) {
      waits_for_[i] = tasks_[i].after.size();
      if (waits_for_[i] == 0) ready_.push_back(i);
    }
    changed_.notify_all();
    while (left_ > 0 || running_ > 0) {
      if (!ready_.empty()) {
        run_next(lock);
      } else {
        changed_.wait(lock, [&] { return !ready_.empty() || (left_ == 0 && running_ == 0); });
      }
    }
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !ready_.empty(); });
      if (stopping_) return;
      run_next(lock);
    }
  }

  void run_next(std::unique_lock<std::mutex>& lock) {
    const size_t task = ready_.back();
    ready_.pop_back();
    ++running_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      tasks_[task].run(stream_);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    --running_;
    if (failure != nullptr && (failure_ == nullptr || task < failed_)) {
      failure_ = failure;
      failed_ = task;
    }
    if (failure_ != nullptr) {
      ready_.clear();
      left_ = 0;
    } else {
      --left_;
      for (const size_t follower : followers_[task]) {
        if (--waits_for_[follower] == 0) ready_.push_back(follower);
      }
    }
    changed_.notify_all();
  }

  const std::vector<Task> tasks_;
  const int64_t repeats_;
  std::vector<std::vector<size_t>> followers_;  // by task: those that wait for it
  std::mutex mutex_;
  std::condition_variable changed_;
  Stream stream_;
  std::vector<size_t> waits_for_;  // by task: how many it still waits for
  std::vector<size_t> ready_;
  size_t left_ = 0, running_ = 0, failed_ = 0;
  std::exception_ptr failure_;  // from task `failed_`
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace

std::unique_ptr<Capture> HostCaptures::capture(std::span<const Task> tasks, int64_t repeats) {
  check_tasks(tasks, repeats);
  if (threads_ == 1) return std::make_unique<InOrderCapture>(tasks, repeats);
  return std::make_unique<ThreadedCapture>(tasks, repeats, threads_);
}

}  // namespace headroom
