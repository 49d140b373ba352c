// The plan: when each node runs and where each value lives, as pure data. Knows no device, no kernel and no
// allocator; everything here can be tested without running anything.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/enum_names.h"
#include "runtime/graph/graph.h"

namespace headroom {

enum class PlanMode : uint8_t {
  kDynamic,   // each buffer is allocated when it is first written and deallocated after its last use
  kPacked,    // one arena, fixed offsets, no allocator call per step
  kParallel,  // the same, and sharing memory never orders nodes that the data leaves unordered
};
template <>
struct EnumNames<PlanMode> {
  static constexpr std::array<std::string_view, 3> kNames = {"dynamic", "packed", "parallel"};
};
constexpr bool has_arena(PlanMode mode) {
  return mode != PlanMode::kDynamic;
}

// What a run is for.
struct Targets {
  std::vector<Value> fetches;  // copied to the host at each run
  bool updates = false;        // also run the update nodes: a training step
  // Where not empty, only the update nodes that change one of these variables: a graph that is trained and
  // tested has updates of both.
  std::vector<Value> updated = {};
  // Inputs have two buffers each: while one step reads the one, the next step's are copied to the other.
  bool doubled_inputs = false;
};

// A run of bytes that one or more values use in turn. Sizes and offsets are multiples of 256, the rounding of
// every strategy.
struct Buffer {
  int64_t bytes = 0;
  int first_step = 0;  // [first_step, end_step): positions in Plan::steps while it is live
  int end_step = 0;
  int64_t offset_bytes = -1;  // in the arena, or in a set of inputs; -1 where there is neither
  int owner = -1;             // the value that first lives here; -1 for workspace
  int node = -1;              // the node that needs it first; -1 for an input
  int device = 0;             // position in Plan::devices
  bool doubled = false;       // an input's that is there twice, apart from what a step allocates
};

// What a plan takes of one device.
struct PlanDevice {
  std::string name;               // as the graph has it: empty for the default device
  int64_t lower_bound_bytes = 0;  // the largest set of its buffers live at once: no placement needs less
  int64_t peak_bytes = 0;         // what a step allocates at its highest, variables apart
  int peak_step = 0;              // position in `steps` of the largest live set
};

enum class StepKind : uint8_t { kAllocate, kCopyIn, kRun, kCopyOut, kDeallocate };

struct Step {
  StepKind kind;
  int id;  // kAllocate, kDeallocate: buffer; kCopyIn, kCopyOut: value; kRun: node
};

// Steps are in order: what can fail (allocations, copies, nodes without side effects) comes first, the update
// nodes last, so that a step that fails has changed no variable. With an arena all copies in come before the
// first node and all copies out between the other nodes and the updates, and nothing overwrites what was
// copied in: the nodes can run again without copies.
struct Plan {
  PlanMode mode = PlanMode::kDynamic;
  Targets targets;
  std::vector<Step> steps;
  std::vector<Buffer> buffers;
  std::vector<int> buffer_of_value;  // by value id; -1: no memory of its own here
  std::vector<int>
      variable_of_value;  // by value id: the variable whose memory it is (itself, or a reshape of it)
  std::vector<int> workspace_of_node;  // by node id: a buffer, or -1
  std::vector<PlanDevice> devices;     // the default one first; those of the graph, needed here or not
  // The same over all devices together.
  int64_t lower_bound_bytes = 0;
  int64_t peak_bytes = 0;
  int peak_step = 0;
  // Where inputs are doubled: what all of them take once, on the default device. Who runs the plan holds two
  // such sets throughout.
  int64_t input_set_bytes = 0;
};

// Schedules the nodes that `targets` need, in graph order, updates last; shares buffers where a value dies at
// an op that can work in place, never copies a reshape, and gives each buffer an offset where there is an
// arena; each device has an arena of its own. In parallel mode memory goes to another buffer only where all
// that used it comes before the new user in the flow of the data; a buffer's life is stated as reaching to
// the last one that must not share with it. workspace_bytes: one number per node of the graph, as the kernels
// state it. Throws InvalidArgument when a fetch is of another graph, or a node reads from another device (see
// placement.h).
Plan make_plan(const Graph& graph, const Targets& targets, PlanMode mode,
               std::span<const int64_t> workspace_bytes);

// Gives each buffer an offset, the best of several greedy orders (by size, by lifetime, by area, by start;
// first and best fit), and returns the bytes of the arena. Deterministic.
int64_t pack(std::span<Buffer> buffers);

// Checks a plan against its graph step by step, sharing no code with the planner: every read finds the value
// it means, in live memory of its device that nothing else wrote; buffers that live together do not overlap;
// updates come last; the stated peak is the real one. Says what is wrong first, or nothing.
std::optional<std::string> find_fault(const Graph& graph, const Plan& plan,
                                      std::span<const int64_t> workspace_bytes);

}  // namespace headroom
