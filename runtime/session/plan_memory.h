// The memory of a plan on its devices: arenas, input sets and the buffers that its steps allocate. The
// session and the prediction take it from here, so that both ask a strategy for the same. Knows no kernel and
// no order of steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/graph/categories.h"
#include "runtime/plan/plan.h"
#include "runtime/session/variables.h"

namespace headroom {

// One arena on each device for sessions that take turns, such as training and testing: as large as the
// largest of their plans needs. Its contents do not outlive a run.
class SharedArenas {
 public:
  // Allocates them for those of the plans that have arenas. The variables must outlive this. Throws as
  // PlanMemory does.
  SharedArenas(std::span<const Plan* const> plans, Variables& variables);
  ~SharedArenas() { release(); }
  SharedArenas(const SharedArenas&) = delete;
  SharedArenas& operator=(const SharedArenas&) = delete;

  // The arena of the device, or null.
  void* on(const PlacedDevice& device) const;

 private:
  struct Arena {
    const PlacedDevice* device;
    int64_t bytes;
    void* block;
  };
  void release() noexcept;

  std::vector<Arena> arenas_;
};

class PlanMemory {
 public:
  // Allocates the arenas, unless `shared` has them, and the input sets. All arguments must outlive this.
  // Throws OutOfMemory, and InvalidArgument for a device that is not among the variables' devices.
  PlanMemory(const Plan& plan, Variables& variables, const SharedArenas* shared = nullptr);
  ~PlanMemory() { release(); }
  PlanMemory(const PlanMemory&) = delete;
  PlanMemory& operator=(const PlanMemory&) = delete;

  const Plan& plan() const { return plan_; }
  const Graph& graph() const { return variables_.graph(); }
  Variables& variables() const { return variables_; }
  // By position in Plan::devices.
  const std::vector<const PlacedDevice*>& devices() const { return devices_; }
  const PlacedDevice& device_of(const Node& node) const { return variables_.devices().find(node.device); }

  // For the steps of a dynamic plan. allocate() throws OutOfMemory.
  void allocate(int buffer, Stream stream);
  void deallocate(int buffer, Stream stream) noexcept;
  // Deallocates the memory that a failed step left allocated.
  void deallocate_all(Stream stream) noexcept;

  // Null while the value's buffer is not allocated, and for a value without memory in this plan.
  void* address_of(int value) const;
  // From now on `*pointer` is the buffer's address.
  void follow(int buffer, void** pointer);

  // For a plan with doubled inputs: device memory for the inputs of a step, set 0 or 1, and the offset of an
  // input in it. The latter throws InvalidArgument when the plan does not read that input.
  bool has_input_sets() const { return input_sets_ != nullptr; }
  std::byte* input_set(int set) const { return input_sets_ + set * plan_.input_set_bytes; }
  int64_t offset_in_input_set(const Value& value) const;
  // The set that the nodes read, 0 at first.
  void use_set(int set);
  int set() const { return set_; }

 private:
  void place_in_arenas();
  void allocate_input_sets();
  void release() noexcept;
  void set_buffer(int id, void* pointer);
  MemoryUser user_of(const Buffer& buffer);
  Allocator& allocator_of(const Buffer& buffer) const {
    return *devices_[static_cast<size_t>(buffer.device)]->allocator;
  }

  const Plan& plan_;
  Variables& variables_;
  const SharedArenas* const shared_;
  std::vector<MemoryCategory> categories_;      // by value id, once they are needed
  std::vector<const PlacedDevice*> devices_;    // by position in Plan::devices
  std::vector<void*> arenas_;                   // likewise; empty where they are shared
  std::vector<void*> buffers_;                  // by buffer: its address while live
  std::vector<std::vector<void**>> followers_;  // by buffer: the pointers that follow it
  std::byte* input_sets_ = nullptr;
  int set_ = 0;
};

}  // namespace headroom
