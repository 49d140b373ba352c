// Blocks that several streams use, which are freed once the work of all is done. Knows no strategy, no lock
// and no statistics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "device/device.h"

namespace headroom {

class PendingBlocks {
 public:
  // A block that was deallocated while other streams used it.
  struct Pending {
    void* pointer;
    int64_t bytes;
    Stream stream;
    std::vector<std::unique_ptr<Event>> events;
  };

  // `device` must outlive this.
  explicit PendingBlocks(Device& device) : device_(device) {}

  // No uses recorded and no block waiting.
  bool empty() const { return other_uses_.empty() && pending_.empty(); }
  // Notes that `stream` also uses the block.
  void record_use(void* pointer, Stream stream);
  // Takes a block that its owner frees on `stream`. False when no other stream uses it, or when the device
  // has failed.
  bool defer(void* pointer, int64_t bytes, Stream stream) noexcept;
  // Calls give_back(pending) for each block that is done, or after a wait for all; true when there were any.
  // Throws DeviceError when the device has failed.
  template <typename GiveBack>
  bool finish(bool wait, const GiveBack& give_back) {
    bool any = false;
    for (size_t i = 0; i < pending_.size();) {
      if (!is_done(pending_[i], wait)) {
        ++i;
        continue;
      }
      give_back(pending_[i]);
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
      any = true;
    }
    return any;
  }
  std::span<const Pending> pending() const { return pending_; }

 private:
  static bool is_done(const Pending& pending, bool wait);

  Device& device_;
  std::unordered_map<void*, std::vector<Stream>> other_uses_;  // by block
  std::vector<Pending> pending_;
};

}  // namespace headroom
