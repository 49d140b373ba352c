// Private pools for CUDA graphs, over any strategy. A graph writes to the addresses of its capture at each
// replay, so memory that a capture has used is not given to other users until its pool is released. Knows no
// CUDA and no PyTorch.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocators/allocator.h"

namespace headroom {

// The pools of one device. Thread-safe.
class GraphPools {
 public:
  using Id = std::pair<unsigned long long, unsigned long long>;
  using TakesStream = std::function<bool(Stream)>;

  // Requests of the streams for which `takes_stream` returns true come from this pool until end(). Each
  // begin() takes a share in the pool.
  void begin(Id id, TakesStream takes_stream);
  void end(Id id);
  // Gives a share back. With the last one idle blocks return to the strategy, and others when they are freed.
  void release(Id id, Allocator& strategy) noexcept;

  // Returns null if no pool serves the stream. Throws the exceptions of the strategy.
  void* allocate(Allocator& strategy, int64_t bytes, Stream stream);
  // False for a block of no pool.
  bool deallocate(Allocator& strategy, void* pointer) noexcept;

 private:
  struct Block {
    void* pointer = nullptr;
    int64_t bytes = 0;
    Stream stream = {};
  };
  struct Pool {
    Id id;
    int shares = 0;
    TakesStream takes_stream;            // empty: nothing is captured
    std::multimap<int64_t, Block> idle;  // by size
  };
  struct Used {
    std::shared_ptr<Pool> pool;
    Block block;
  };

  std::shared_ptr<Pool> find(Id id) const;

  // Number of pools that capture, and of blocks that they have handed out: most programs have neither.
  std::atomic<int> capturing_ = 0;
  std::atomic<int64_t> used_count_ = 0;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Pool>> pools_;
  std::unordered_map<void*, Used> used_;
};

}  // namespace headroom
