// A stream-ordered pool of a device that is simulated or the host itself. As the driver does, it maps idle
// pages to new addresses, so all that is idle can serve any request. Knows no profile.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <unordered_map>

#include "device/host/host_pages.h"
#include "device/host/memory_ledger.h"
#include "device/host/simulated_streams.h"
#include "device/stream_ordered_pool.h"

namespace headroom {

// Microseconds of a call.
struct StreamPoolCosts {
  double allocate_us = 0;
  double release_us = 0;
  double grow_us = 0;  // on top, when the pool takes from the device
};

class HostStreamPool final : public StreamOrderedPool {
 public:
  // Counts pages of `granularity_bytes` in `ledger` and takes their memory from `pages`; these and `streams`
  // must outlive this. `spend` gets the time of each call.
  HostStreamPool(const StreamOrderedPoolSettings& settings, MemoryLedger& ledger, HostPages& pages,
                 SimulatedStreams& streams, int64_t granularity_bytes, const StreamPoolCosts& costs,
                 std::function<void(double us)> spend);
  ~HostStreamPool() override;

  void* try_allocate(int64_t bytes, Stream stream) override;
  void release(void* pointer, int64_t bytes, Stream stream) noexcept override;
  void trim(int64_t keep_bytes) noexcept override;
  int64_t reserved_bytes() const override;
  int64_t used_bytes() const override;
  // Returns the number of idle mappings that all calls have examined.
  int64_t visits() const;

 private:
  // Idle memory that stays mapped, so that the next request of that size can reuse it.
  struct Mapping {
    void* pointer = nullptr;
    int64_t bytes = 0;
    Stream stream;
    uint64_t age = 0;                            // larger: released later
    Mapping *older = nullptr, *newer = nullptr;  // in its row
    std::list<Mapping>::iterator place = {};     // in idle_
  };
  // The idle mappings of one size and stream.
  struct Row {
    Stream stream;
    Mapping *oldest = nullptr, *newest = nullptr;
  };
  using Rows = std::unordered_multimap<int64_t, Row>;  // by size

  bool has_bytes() const { return pages_.backing() == Backing::kHostMemory; }
  bool grow_for(int64_t bytes);
  Rows::iterator find_row(int64_t bytes, Stream stream);
  void add_idle(void* pointer, int64_t bytes, Stream stream);
  void erase_idle(Mapping& idle, Rows::iterator row);
  void* take_idle(int64_t bytes, Stream stream);
  void unmap_idle_above(int64_t bytes, const Stream* next);
  void shrink_to(int64_t keep_bytes) noexcept;

  const StreamOrderedPoolSettings settings_;
  MemoryLedger& ledger_;
  HostPages& pages_;
  SimulatedStreams& streams_;
  const int64_t granularity_bytes_;
  const StreamPoolCosts costs_;
  const std::function<void(double us)> spend_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, int64_t> used_;  // pointer -> bytes; where they have bytes
  std::list<Mapping> idle_;                  // the oldest first
  Rows rows_;
  uint64_t releases_ = 0;
  int64_t visits_ = 0;
  int64_t reserved_bytes_ = 0;
  int64_t used_bytes_ = 0;
  int64_t idle_bytes_ = 0;  // bytes of mapped memory; other reserved memory has no address
};

}  // namespace headroom
