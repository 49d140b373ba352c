// Virtual memory: addresses are reserved, physical blocks are created, and blocks are mapped where they are
// needed. An optional part of DeviceMemory; knows no strategy and no stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace headroom {

// Device memory without an address.
struct PhysicalBlock {
  uint64_t handle = 0;
  int64_t bytes = 0;
};

// Thread-safe. All sizes and addresses are multiples of the granularity. Nothing is initialised, and a block
// keeps its contents when it is unmapped and mapped again.
class VirtualMemory {
 public:
  virtual ~VirtualMemory() = default;

  // The smallest physical block, in bytes.
  virtual int64_t granularity_bytes() const = 0;

  // Addresses of `bytes` (> 0) with nothing behind them; null when there are none.
  virtual void* try_reserve_range(int64_t bytes) = 0;
  // Gives back what try_reserve_range returned for the same `bytes`. Nothing may be mapped in it.
  virtual void release_range(void* base, int64_t bytes) noexcept = 0;

  // Physical memory of `bytes` (> 0) in one block; nothing when there is no room.
  virtual std::optional<PhysicalBlock> try_create(int64_t bytes) = 0;
  // Gives a block back: at once, or when its last mapping goes.
  virtual void release(const PhysicalBlock& block) noexcept = 0;

  // Maps the whole block at `address`, inside a reserved range and where nothing is mapped, for the device to
  // read and write. A block may be mapped at several addresses. False when the driver refuses: then nothing
  // has changed.
  virtual bool try_map(void* address, const PhysicalBlock& block) = 0;
  // Maps blocks side by side, the first at `address`: all of them or, when the driver refuses one, none.
  virtual bool try_map_run(void* address, std::span<const PhysicalBlock> blocks) {
    char* at = static_cast<char*>(address);
    for (size_t i = 0; i < blocks.size(); at += blocks[i++].bytes) {
      if (try_map(at, blocks[i])) continue;
      while (i-- > 0) unmap(at -= blocks[i].bytes, blocks[i]);
      return false;
    }
    return true;
  }
  // Ends one mapping of `block`, at `address`. The caller has waited for all work that uses it.
  virtual void unmap(void* address, const PhysicalBlock& block) noexcept = 0;
};

}  // namespace headroom
