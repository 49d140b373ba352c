// Threads of the host that share one loop at a time. Knows no device and no kernel.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace headroom {

// Thread-safe: if the threads are busy with another loop, a loop runs on its caller only.
class ThreadPool {
 public:
  // At least 1 thread; the caller of a loop is one of them, and the others start at the first loop.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(begin, end, worker) for pieces [begin, end) that make up [0, count), each but the last a
  // multiple of `grain` (> 0) long; two that run at once have different workers in [0, threads()). Which
  // thread gets which piece is left open, so a body gives the same result however the loop is cut. The body
  // must not throw. Takes nothing from the heap.
  template <typename Body>
  void for_each(int64_t count, int64_t grain, const Body& body) {
    run({count, grain,
         [](const void* of, int64_t begin, int64_t end, int worker) {
           (*static_cast<const Body*>(of))(begin, end, worker);
         },
         &body});
  }

 private:
  struct Loop {
    int64_t count = 0, grain = 1;
    void (*call)(const void* body, int64_t begin, int64_t end, int worker) = nullptr;
    const void* body = nullptr;
  };
  void run(const Loop& loop);
  void start();
  void work(int worker);
  void take_pieces(int worker);

  const int threads_;
  std::atomic<bool> taken_ = false;  // by the caller of a loop
  std::mutex mutex_;
  std::condition_variable begins_, ends_;
  Loop loop_;
  int64_t piece_ = 0;
  std::atomic<int64_t> next_{0};
  uint64_t loops_ = 0;  // begun so far
  int busy_ = 0;        // threads that are not done with the loop
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

// Runs on the threads if there are any, otherwise on the caller.
template <typename Body>
void for_each_piece(ThreadPool* threads, int64_t count, int64_t grain, const Body& body) {
  if (threads != nullptr) return threads->for_each(count, grain, body);
  if (count > 0) body(int64_t{0}, count, 0);
}

}  // namespace headroom
