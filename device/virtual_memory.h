// Virtual memory: reserves addresses, creates physical blocks, and maps blocks on demand. An optional part of
// DeviceMemory; knows no strategy and no stream.
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

// Thread-safe. All sizes and addresses are multiples of the granularity. Memory is uninitialized, and a block
// keeps its contents when it is unmapped and mapped again.
class VirtualMemory {
 public:
  virtual ~VirtualMemory() = default;

  // The smallest physical block, in bytes.
  virtual int64_t granularity_bytes() const = 0;

  // Reserves `bytes` (> 0) of addresses without memory; null if there are none.
  virtual void* try_reserve_range(int64_t bytes) = 0;
  // Releases a range from try_reserve_range with the same `bytes`. Nothing may be mapped in it.
  virtual void release_range(void* base, int64_t bytes) noexcept = 0;

  // Physical memory of `bytes` (> 0) in one block; nothing when there is no room.
  virtual std::optional<PhysicalBlock> try_create(int64_t bytes) = 0;
  // Releases a block: at once, or with its last mapping.
  virtual void release(const PhysicalBlock& block) noexcept = 0;

  // Maps the whole block at `address`, inside a reserved range that is unmapped there, for the device to read
  // and write. A block may be mapped at several addresses. Returns false, and changes nothing, if the driver
  // refuses.
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
