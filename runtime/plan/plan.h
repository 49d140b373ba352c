// The plan: when each node runs and where each value lives, as pure data. Knows no device, no kernel and no
// allocator; everything here can be tested without running anything.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/enum_names.h"
#include "runtime/graph/graph.h"

namespace headroom {

enum class PlanMode : uint8_t {
  kDynamic,   // each buffer is allocated before its first use and deallocated after its last
  kPacked,    // one arena, fixed offsets, no allocator call per step
  kParallel,  // the same, but buffers share memory only where the data flow already orders their users
};
constexpr auto value_names(PlanMode) {
  return std::to_array<std::string_view>({"dynamic", "packed", "parallel"});
}
constexpr bool has_arena(PlanMode mode) {
  return mode != PlanMode::kDynamic;
}

// The purpose of a run.
struct Targets {
  std::vector<Value> fetches;  // copied to the host at each run
  bool updates = false;        // also run the update nodes: a training step
  // Unless empty, only the update nodes that change one of these variables: a graph for training and testing
  // has updates of both.
  std::vector<Value> updated = {};
  // Inputs have two buffers each: while a step reads one, the inputs of the next step are copied to the
  // other.
  bool doubled_inputs = false;
};

// Consecutive bytes that one or more values use in turn. Sizes and offsets are multiples of 256, the rounding
// of every strategy.
struct Buffer {
  int64_t bytes = 0;
  int first_step = 0;  // [first_step, end_step): positions in Plan::steps while it is live
  int end_step = 0;
  int64_t offset_bytes = -1;  // in the arena, or in an input set; -1 where there is neither
  int owner = -1;             // its first value; -1 for workspace
  int node = -1;              // its first node; -1 for an input
  int device = 0;             // position in Plan::devices
  bool doubled = false;       // in both input sets, and not in what a step allocates
};

// The memory that a plan needs on one device.
struct PlanDevice {
  std::string name;               // as in the graph: empty for the default device; kHostPlace
  int64_t lower_bound_bytes = 0;  // the most buffers live at once: no packing needs less
  int64_t peak_bytes = 0;         // the peak of a step's allocations, without variables
  int peak_step = 0;              // position in `steps` where most is live
};

enum class StepKind : uint8_t { kAllocate, kCopyIn, kRun, kCopyOut, kDeallocate };

struct Step {
  StepKind kind;
  int id;  // kAllocate, kDeallocate: buffer; kCopyIn, kCopyOut: value; kRun: node
};

// Steps that can fail (allocations, copies, nodes without side effects) come first and update nodes last, so
// that a failed step has changed no variable. With an arena all copies in come before the first node and all
// copies out between the other nodes and the updates, and nothing overwrites the inputs: the nodes can run
// again without copies. walk.h carries a plan out.
struct Plan {
  PlanMode mode = PlanMode::kDynamic;
  Targets targets;
  std::vector<Step> steps;
  std::vector<Buffer> buffers;
  std::vector<int> buffer_of_value;    // by value id; -1: no memory of its own in this plan
  std::vector<int> variable_of_value;  // by value id: the variable that it is or reshapes, or -1
  std::vector<int> workspace_of_node;  // by node id: a buffer, or -1
  std::vector<PlanDevice> devices;     // all devices of the graph, the default one first
  // Over all devices together, without host memory.
  int64_t lower_bound_bytes = 0;
  int64_t peak_bytes = 0;
  int peak_step = 0;
  // If inputs are doubled: the bytes of one set of them, on the default device. Two sets stay allocated
  // throughout.
  int64_t input_set_bytes = 0;
};

// The nodes that targets need, in graph order: those that change nothing, and the updates.
struct NeededNodes {
  std::vector<int> pure, updates;
};
NeededNodes find_needed_nodes(const Graph& graph, const Targets& targets);

// The most that a plan has in host memory.
int64_t host_bytes_of(const Plan& plan);

// Schedules the nodes that `targets` need, in graph order, updates last. Shares buffers where a value dies at
// an op that can work in place, never copies a reshape, and packs the buffers of each device into its arena,
// if there is one. In parallel mode a buffer reuses memory only where the data flow orders all earlier users
// before it; the stated life of a buffer reaches to the last one that must not share with it.
// workspace_bytes: by node, as the kernels state it. Throws InvalidArgument when a fetch belongs to another
// graph, or a node reads from another device (see placement.h).
Plan make_plan(const Graph& graph, const Targets& targets, PlanMode mode,
               std::span<const int64_t> workspace_bytes);

// Gives each buffer an offset (allocators/packing/pack.h), and returns the bytes of the arena. Deterministic.
int64_t pack(std::span<Buffer> buffers);

// Checks a plan against its graph step by step, and shares no code with the planner: every read finds its
// value, in live memory of its device that nothing else wrote; buffers that are live together do not overlap;
// updates come last; the stated peak is the real one. Returns the first fault, or nothing.
std::optional<std::string> find_fault(const Graph& graph, const Plan& plan,
                                      std::span<const int64_t> workspace_bytes);

}  // namespace headroom
