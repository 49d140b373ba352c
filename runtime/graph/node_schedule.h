// The nodes of a graph in another order, some of them run more than once, and copies of values to host memory
// and back between them: the decisions of passes that save memory, as data. Knows no plan and no device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/graph/graph.h"

namespace headroom {

enum class ScheduledKind : uint8_t {
  kNode,
  kStore,  // a copy of a value to host memory, kHostPlace
  kLoad,   // a copy from there
};

// One run of a node, the first of which has the node's own outputs and all others new values, or a copy,
// whose output is a new value.
struct ScheduledNode {
  int node = -1;                               // -1 for a copy
  std::vector<int> inputs = {}, outputs = {};  // value ids
  ScheduledKind kind = ScheduledKind::kNode;
};

struct NodeSchedule {
  std::vector<ScheduledNode> nodes;
  // By new value, whose ids follow those of the graph: the value that it copies or recomputes.
  std::vector<int> copy_of;

  bool empty() const { return nodes.empty(); }
  int repeats() const;  // nodes that run again
  int stores() const;   // values that go to host memory
};

// Rewrites a graph: first the scheduled nodes, then all others in their order. Repeated nodes and values get
// names of their own. The graph must be the one that the schedule was made for, or an identical one. Throws
// InvalidArgument if it is another one, or a value would be read before it is made.
void apply(const NodeSchedule& schedule, Graph& graph);
// A rewritten copy of the graph; its values have the same ids.
std::unique_ptr<Graph> rewritten(const Graph& graph, const NodeSchedule& schedule);

}  // namespace headroom
