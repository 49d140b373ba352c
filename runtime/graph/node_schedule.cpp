#include "runtime/graph/node_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "runtime/base/errors.h"

namespace headroom {

int NodeSchedule::repeats() const {
  size_t most = 0;
  for (const ScheduledNode& scheduled : nodes) most = std::max(most, static_cast<size_t>(scheduled.node) + 1);
  std::vector<bool> ran(most);
  int count = 0;
  for (const ScheduledNode& scheduled : nodes) {
    count += ran[static_cast<size_t>(scheduled.node)] ? 1 : 0;
    ran[static_cast<size_t>(scheduled.node)] = true;
  }
  return count;
}

void apply(const NodeSchedule& schedule, Graph& graph) {
  if (schedule.empty()) return;
  const int first_new = static_cast<int>(graph.values().size());
  const int last = first_new + static_cast<int>(schedule.copy_of.size());
  const auto is_known = [](int id, int end) { return id >= 0 && id < end; };
  for (const ScheduledNode& scheduled : schedule.nodes) {
    if (!is_known(scheduled.node, static_cast<int>(graph.nodes().size())) ||
        scheduled.inputs.size() != graph.node(scheduled.node).inputs.size() ||
        scheduled.outputs.size() != graph.node(scheduled.node).outputs.size()) {
      throw InvalidArgument("schedule: made for another graph");
    }
    for (const std::vector<int>* ids : {&scheduled.inputs, &scheduled.outputs}) {
      for (const int id : *ids) {
        if (!is_known(id, last)) throw InvalidArgument("schedule: names a value that does not exist");
      }
    }
  }
  for (const int origin : schedule.copy_of) {
    if (!is_known(origin, first_new)) throw InvalidArgument("schedule: made for another graph");
    ValueInfo info = graph.value(origin);
    info.name += "/again";
    graph.new_result(std::move(info));
  }
  std::vector<Node> nodes;
  std::vector<bool> ran(graph.nodes().size());
  for (const ScheduledNode& scheduled : schedule.nodes) {
    const auto id = static_cast<size_t>(scheduled.node);
    Node node = graph.node(scheduled.node);
    node.inputs = scheduled.inputs;
    node.outputs = scheduled.outputs;
    if (ran[id] && !node.outputs.empty()) node.name = graph.value(node.outputs.front()).name;
    ran[id] = true;
    nodes.push_back(std::move(node));
  }
  for (size_t id = 0; id < ran.size(); ++id) {
    if (!ran[id]) nodes.push_back(graph.nodes()[id]);
  }
  graph.replace_nodes(std::move(nodes));
}

std::unique_ptr<Graph> rewritten(const Graph& graph, const NodeSchedule& schedule) {
  std::unique_ptr<Graph> copy = graph.copy();
  apply(schedule, *copy);
  return copy;
}

}  // namespace headroom
