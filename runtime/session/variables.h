// The variables of a graph: one block each, from the strategy of its device, for as long as this lives. Knows
// no plan.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "runtime/graph/graph.h"
#include "runtime/session/device_set.h"

namespace headroom {

class Variables {
 public:
  // The contents of new variables: initial values, or only memory, as on a device without bytes.
  enum class Contents : uint8_t { kInitial, kNone };

  // Allocates every variable of the graph and gives it its initial value, if it has one. A variable that is
  // part of a file and that no node changes gets no memory on a CPU: the file's own is used. Throws
  // OutOfMemory or DeviceError (nothing stays allocated), and InvalidArgument for one on a device that is not
  // in the set.
  Variables(const Graph& graph, DeviceSet devices, Contents contents = Contents::kInitial);
  Variables(const Graph& graph, Device& device, Allocator& allocator)
      : Variables(graph, DeviceSet(device, allocator)) {}
  ~Variables();
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  const Graph& graph() const { return graph_; }
  // The devices of the graph's sessions, and the default one with its strategy.
  const DeviceSet& devices() const { return devices_; }
  Device& device() const { return *devices_.front().device; }
  Allocator& allocator() const { return *devices_.front().allocator; }
  // The bytes that a variable asks its strategy for.
  static int64_t block_bytes(const ValueInfo& variable) {
    return round_up(variable.spec.bytes(), Allocator::kAlignment);
  }
  // Device address of a variable by value id. Throws InvalidArgument for one that the graph got later.
  void* data(int id) const;

  // Copies a variable to or from the host; sizes must match its spec exactly. Throw InvalidArgument, also to
  // write one that is used in its file, or DeviceError.
  std::vector<std::byte> read(const Value& variable) const;
  void write(const Value& variable, std::span<const std::byte> bytes);

  // FNV-1a over names and bytes of the named variables in the order given: equal weights, equal number.
  uint64_t checksum(std::span<const Value> variables) const;

 private:
  void release() noexcept;
  bool is_usable_in_place(const ValueInfo& variable) const;
  const PlacedDevice& device_of(int id) const { return devices_.find(graph_.value(id).device); }

  const Graph& graph_;
  const DeviceSet devices_;
  std::vector<void*> blocks_;    // by value id; null unless the value is a variable
  std::vector<bool> is_mapped_;  // by value id: the block is part of a file
};

}  // namespace headroom
