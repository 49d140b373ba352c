// Virtual memory of a simulated device or the host itself. Ranges and blocks are real host memory, so one
// block can be mapped at two addresses. Misuse that makes CUDA return an error ends the program, since it is
// a bug of the strategy. Knows no profile.
#pragma once

#include <map>
#include <mutex>
#include <unordered_map>

#include "device/host/backing.h"
#include "device/host/memory_ledger.h"
#include "device/virtual_memory.h"

namespace headroom {

// The time of a driver call, which grows with its bytes.
struct CallCost {
  double us = 0;
  double us_per_mib = 0;

  double of(int64_t bytes) const;
};

struct VirtualMemoryCosts {
  CallCost reserve, create, map, unmap, release;
};

class HostVirtualMemory final : public VirtualMemory {
 public:
  // Physical blocks are taken from `ledger`, which must outlive this. The granularity is raised to the host's
  // page.
  HostVirtualMemory(MemoryLedger& ledger, int64_t granularity_bytes, const VirtualMemoryCosts& costs,
                    Backing backing = Backing::kHostMemory);
  ~HostVirtualMemory() override;
  HostVirtualMemory(const HostVirtualMemory&) = delete;
  HostVirtualMemory& operator=(const HostVirtualMemory&) = delete;

  // Returns false if the host has no file for the pages: a limit on the size of files is in force.
  bool is_supported();
  int64_t granularity_bytes() const override { return granularity_bytes_; }
  void* try_reserve_range(int64_t bytes) override;
  void release_range(void* base, int64_t bytes) noexcept override;
  std::optional<PhysicalBlock> try_create(int64_t bytes) override;
  void release(const PhysicalBlock& block) noexcept override;
  bool try_map(void* address, const PhysicalBlock& block) override;
  void unmap(void* address, const PhysicalBlock& block) noexcept override;

  // Time of all calls so far, by the costs.
  double driver_time_us() const;

 private:
  struct Physical {
    int64_t bytes = 0;
    int mappings = 0;
    bool released = false;
  };
  using Blocks = std::unordered_map<uint64_t, Physical>;

  bool open_file();
  Blocks::iterator find_block(const PhysicalBlock& block, const char* call);
  void* take_range(int64_t bytes);
  void check_multiple(int64_t bytes, const char* call) const;
  void check_free(uintptr_t address, int64_t bytes) const;
  void give_back(Blocks::iterator block) noexcept;

  MemoryLedger& ledger_;
  const int64_t granularity_bytes_;
  const VirtualMemoryCosts costs_;
  const Backing backing_;
  mutable std::mutex mutex_;
  double driver_time_us_ = 0;
  // All blocks are in one unnamed file, each at its own offset: its handle less one granule. Offsets are not
  // reused, since the file is sparse and 2^60 bytes long.
  int file_ = -1;
  int64_t next_offset_bytes_ = 0;
  Blocks blocks_;
  uintptr_t next_range_;                         // without backing
  std::map<uintptr_t, int64_t> ranges_;          // base -> bytes
  std::map<uintptr_t, PhysicalBlock> mappings_;  // address -> the block mapped there
};

}  // namespace headroom
