// A plan at its place: the memory of its buffers on each device and, for each node, the views that its kernel
// takes, which follow that memory. Knows no order of work and launches nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/category.h"
#include "runtime/plan/plan.h"
#include "runtime/session/kernels.h"
#include "runtime/session/variables.h"

namespace headroom {

struct BoundNode {
  const PlacedDevice* on = nullptr;
  bool is_between_devices = false;
  Kernel* kernel = nullptr;
  std::vector<TensorView> inputs, outputs;  // in the order the kernel takes them
  void* workspace = nullptr;

  void run(Stream stream) const { kernel->run(inputs, outputs, workspace, stream); }
};

class BoundPlan {
 public:
  // Resolves every pointer that can be known now, so that a run only fills in addresses; arenas and sets of
  // inputs are allocated. Graph and variables must outlive it. Throws OutOfMemory when they do not fit, and
  // InvalidArgument when the variables are another graph's.
  BoundPlan(const Graph& graph, Plan plan, std::shared_ptr<const Kernels> kernels, Variables& variables);
  ~BoundPlan();
  BoundPlan(const BoundPlan&) = delete;
  BoundPlan& operator=(const BoundPlan&) = delete;

  const Graph& graph() const { return graph_; }
  const Plan& plan() const { return plan_; }
  Variables& variables() const { return variables_; }
  // By position in Plan::devices.
  const std::vector<const PlacedDevice*>& devices() const { return devices_; }
  const PlacedDevice& home_of(int value) const {
    return variables_.devices().find(graph_.value(value).device);
  }
  // Of a node that the plan runs.
  const BoundNode& node(int id) const { return nodes_[static_cast<size_t>(id)]; }
  // The same as work for a stream that runs it later, with views of its own: by then those of the node may be
  // another step's.
  StreamWork work_of(int node) const;
  // Null while the value's buffer is not allocated, and for a value that the plan does not have.
  void* address_of(int value) const;

  // Of a dynamic plan, whose steps say when. allocate() throws OutOfMemory.
  void allocate(int buffer, Stream stream);
  void deallocate(int buffer, Stream stream) noexcept;
  // What a run that failed has left.
  void deallocate_all(Stream stream) noexcept;

  // Of a plan with doubled inputs: device memory for the inputs of a step, 0 or 1, and where in it each lies.
  // The second throws InvalidArgument when the plan does not read that input.
  bool has_input_sets() const { return input_sets_ != nullptr; }
  std::byte* input_set(int set) const { return input_sets_ + set * plan_.input_set_bytes; }
  int64_t offset_in_input_set(const Value& value) const;
  // Which one the nodes read, 0 at first.
  void use_set(int set);
  int set() const { return set_; }

 private:
  void bind_node(int id);
  void allocate_arenas();
  void allocate_input_sets();
  void release_memory() noexcept;
  void set_buffer(int id, void* pointer);
  const PlacedDevice& device_of(const Buffer& buffer) const {
    return *devices_[static_cast<size_t>(buffer.device)];
  }

  const Graph& graph_;
  Plan plan_;
  std::shared_ptr<const Kernels> kernels_;
  Variables& variables_;
  std::vector<MemoryCategory> categories_;           // by value
  std::vector<const PlacedDevice*> devices_;         // by position in Plan::devices
  std::vector<void*> arenas_;                        // likewise
  std::vector<BoundNode> nodes_;                     // by node id
  std::vector<void*> buffers_;                       // by buffer: its address while live
  std::vector<std::vector<void**>> uses_of_buffer_;  // by buffer: the pointers that follow it
  std::byte* input_sets_ = nullptr;
  int set_ = 0;
};

}  // namespace headroom
