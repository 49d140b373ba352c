#include "base/thread_pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"

namespace headroom {
namespace {

// Pieces for each thread: threads that started late, or that the machine holds up, leave theirs to others.
constexpr int64_t kPiecesPerThread = 4;

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  if (threads < 1) throw InvalidArgument(fmt::format("{} threads: at least 1 is needed", threads));
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  begins_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::start() {
  for (int worker = 1; worker < threads_; ++worker) workers_.emplace_back([this, worker] { work(worker); });
}

void ThreadPool::run(const Loop& loop) {
  if (loop.count <= 0) return;
  if (threads_ == 1 || loop.count <= loop.grain || taken_.exchange(true)) {
    return loop.call(loop.body, 0, loop.count, 0);
  }
  if (workers_.empty()) start();
  {
    const std::lock_guard lock(mutex_);
    loop_ = loop;
    const int64_t pieces = kPiecesPerThread * threads_;
    const int64_t even = (loop.count + pieces - 1) / pieces;
    piece_ = (even + loop.grain - 1) / loop.grain * loop.grain;
    next_ = 0;
    busy_ = static_cast<int>(workers_.size());
    ++loops_;
  }
  begins_.notify_all();
  take_pieces(0);
  std::unique_lock lock(mutex_);
  ends_.wait(lock, [&] { return busy_ == 0; });
  taken_ = false;
}

void ThreadPool::take_pieces(int worker) {
  for (;;) {
    const int64_t begin = next_.fetch_add(piece_);
    if (begin >= loop_.count) return;
    loop_.call(loop_.body, begin, std::min(begin + piece_, loop_.count), worker);
  }
}

void ThreadPool::work(int worker) {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    begins_.wait(lock, [&] { return stopping_ || loops_ != seen; });
    if (stopping_) return;
    seen = loops_;
    lock.unlock();
    take_pieces(worker);
    lock.lock();
    if (--busy_ == 0) ends_.notify_one();
  }
}

}  // namespace headroom
