// The nodes of a graph in another order, some of them run more than once: what passes that save memory
// decide, as data. Knows no plan and no device.
#pragma once

#include <memory>
#include <vector>

#include "runtime/graph/graph.h"

namespace headroom {

// One run of a node. The first run of a node has its own outputs, a repeated one has new values.
struct ScheduledNode {
  int node = -1;
  std::vector<int> inputs = {}, outputs = {};  // value ids
};

struct NodeSchedule {
  std::vector<ScheduledNode> nodes;
  // By new value, whose ids follow those of the graph: the value that it is computed again from.
  std::vector<int> copy_of;

  bool empty() const { return nodes.empty(); }
  int repeats() const;  // nodes that run again
};

// Rewrites a graph: first the scheduled nodes, then all others in their order. Repeated nodes and values get
// names of their own. The graph must be the one that the schedule was made for, or built alike. Throws
// InvalidArgument when it is another one, or a value would be read before it is made.
void apply(const NodeSchedule& schedule, Graph& graph);
// A rewritten copy of the graph; its values have the same ids.
std::unique_ptr<Graph> rewritten(const Graph& graph, const NodeSchedule& schedule);

}  // namespace headroom
