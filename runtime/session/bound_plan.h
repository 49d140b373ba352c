// A plan bound to memory: for each node the views that its kernel takes, which follow the plan's memory.
// Knows no order of work and launches nothing.
#pragma once

#include <memory>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/session/kernels.h"
#include "runtime/session/plan_memory.h"
#include "runtime/session/variables.h"

namespace headroom {

struct BoundNode {
  const PlacedDevice* on = nullptr;
  bool queues_itself = false;  // a copy between devices, or to or from host memory
  Kernel* kernel = nullptr;
  std::vector<TensorView> inputs, outputs;  // in the order the kernel takes them
  void* workspace = nullptr;

  void run(Stream stream) const { kernel->run(inputs, outputs, workspace, stream); }
};

class BoundPlan {
 public:
  // Resolves every pointer that can be known now, so that a run only fills in addresses. Graph and variables
  // must outlive it. Throws as PlanMemory does, and InvalidArgument when the variables are another graph's.
  BoundPlan(const Graph& graph, Plan plan, std::shared_ptr<const Kernels> kernels, Variables& variables,
            const SharedArenas* arenas = nullptr);
  BoundPlan(const BoundPlan&) = delete;
  BoundPlan& operator=(const BoundPlan&) = delete;

  const Graph& graph() const { return memory_.graph(); }
  const Plan& plan() const { return plan_; }
  PlanMemory& memory() { return memory_; }
  const PlanMemory& memory() const { return memory_; }
  Variables& variables() const { return memory_.variables(); }
  // By position in Plan::devices.
  const std::vector<const PlacedDevice*>& devices() const { return memory_.devices(); }
  const PlacedDevice& home_of(int value) const {
    return variables().devices().find(graph().value(value).device);
  }
  // A node that the plan runs.
  const BoundNode& node(int id) const { return nodes_[static_cast<size_t>(id)]; }
  // Returns the node as work for a stream that runs it later. The work has views of its own, because those of
  // the node may be another step's by then.
  StreamWork work_of(int node) const;

 private:
  void bind_node(int id);

  const Plan plan_;
  std::shared_ptr<const Kernels> kernels_;
  PlanMemory memory_;
  std::vector<BoundNode> nodes_;  // by node id
};

}  // namespace headroom
