// Scratch memory for the threads that share a loop of a kernel. The first thread uses the kernel's workspace,
// the others host memory outside the plan, so that a plan does not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "kernels/cpu/on_first_use.h"

namespace headroom::cpu {

class WorkerScratch {
 public:
  // `bytes` for each thread of the pool except the first; none without a pool.
  WorkerScratch(const ThreadPool* threads, int64_t bytes)
      : stride_(round_up(bytes, kAlignment)),
        memory_([others = threads == nullptr ? 0 : threads->threads() - 1, stride = stride_] {
          return std::shared_ptr<std::byte>(
              static_cast<std::byte*>(
                  ::operator new (static_cast<size_t>(others * stride), std::align_val_t{kAlignment})),
              [](std::byte* memory) { ::operator delete (memory, std::align_val_t{kAlignment}); });
        }) {}

  // `first` for worker 0.
  template <typename T>
  T* of(int worker, T* first) const {
    return worker == 0 ? first : reinterpret_cast<T*>(memory_->get() + (worker - 1) * stride_);
  }

 private:
  static constexpr int64_t kAlignment = 256;  // as the workspace has
  int64_t stride_;
  OnFirstUse<std::shared_ptr<std::byte>> memory_;
};

}  // namespace headroom::cpu
