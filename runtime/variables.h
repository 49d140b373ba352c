// The state of a graph on a device: one block per variable, from one strategy, for as long as this lives.
// Knows no plan.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "allocators/allocator.h"
#include "runtime/core/device.h"
#include "runtime/graph.h"

namespace headroom {

class Variables {
 public:
  // Allocates every variable of the graph and gives it its initial value, if it has one. Throws OutOfMemory (nothing stays
  // allocated) or DeviceError.
  Variables(const Graph& graph, Device& device, Allocator& allocator);
  ~Variables();
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  const Graph& graph() const { return graph_; }
  Device& device() const { return device_; }
  Allocator& allocator() const { return allocator_; }
  // Device address of a variable by value id. Throws InvalidArgument for one that the graph got later.
  void* data(int id) const;

  // Copies a variable to or from the host; sizes must match its spec exactly. Throw InvalidArgument or
  // DeviceError.
  std::vector<std::byte> read(const Value& variable) const;
  void write(const Value& variable, std::span<const std::byte> bytes);

  // FNV-1a over names and bytes of the named variables in the order given: equal weights, equal number.
  uint64_t checksum(std::span<const Value> variables) const;

 private:
  void release() noexcept;

  const Graph& graph_;
  Device& device_;
  Allocator& allocator_;
  std::vector<void*> blocks_;  // by value id; null where the value is no variable
};

}  // namespace headroom
