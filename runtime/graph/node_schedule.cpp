#include "runtime/graph/node_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/errors.h"
#include "runtime/graph/placement.h"

namespace headroom {
namespace {

const char* suffix_of(ScheduledKind made_by) {
  switch (made_by) {
    case ScheduledKind::kStore:
      return "/on_host";
    case ScheduledKind::kLoad:
      return "/from_host";
    case ScheduledKind::kNode:
      break;
  }
  return "/again";
}

}  // namespace

int NodeSchedule::repeats() const {
  size_t most = 0;
  for (const ScheduledNode& scheduled : nodes) most = std::max(most, static_cast<size_t>(scheduled.node + 1));
  std::vector<bool> ran(most);
  int count = 0;
  for (const ScheduledNode& scheduled : nodes) {
    if (scheduled.kind != ScheduledKind::kNode) continue;
    count += ran[static_cast<size_t>(scheduled.node)] ? 1 : 0;
    ran[static_cast<size_t>(scheduled.node)] = true;
  }
  return count;
}

int NodeSchedule::stores() const {
  return static_cast<int>(std::ranges::count_if(
      nodes, [](const ScheduledNode& scheduled) { return scheduled.kind == ScheduledKind::kStore; }));
}

void apply(const NodeSchedule& schedule, Graph& graph) {
  if (schedule.empty()) return;
  const int first_new = static_cast<int>(graph.values().size());
  const int last = first_new + static_cast<int>(schedule.copy_of.size());
  const auto is_known = [](int id, int end) { return id >= 0 && id < end; };
  for (const ScheduledNode& scheduled : schedule.nodes) {
    const bool is_node = scheduled.kind == ScheduledKind::kNode;
    if (is_node && !is_known(scheduled.node, static_cast<int>(graph.nodes().size())))
      throw InvalidArgument("schedule: made for another graph");
    const size_t inputs = is_node ? graph.node(scheduled.node).inputs.size() : 1;
    const size_t outputs = is_node ? graph.node(scheduled.node).outputs.size() : 1;
    if (scheduled.inputs.size() != inputs || scheduled.outputs.size() != outputs)
      throw InvalidArgument("schedule: made for another graph");
    for (const std::vector<int>* ids : {&scheduled.inputs, &scheduled.outputs}) {
      for (const int id : *ids) {
        if (!is_known(id, last)) throw InvalidArgument("schedule: names a value that does not exist");
      }
    }
  }
  std::vector<ScheduledKind> made_by(schedule.copy_of.size(), ScheduledKind::kNode);
  for (const ScheduledNode& scheduled : schedule.nodes) {
    if (scheduled.kind == ScheduledKind::kNode) continue;
    if (scheduled.outputs[0] < first_new) throw InvalidArgument("schedule: a copy overwrites a value");
    made_by[static_cast<size_t>(scheduled.outputs[0] - first_new)] = scheduled.kind;
  }
  for (size_t i = 0; i < schedule.copy_of.size(); ++i) {
    const int origin = schedule.copy_of[i];
    if (!is_known(origin, first_new)) throw InvalidArgument("schedule: made for another graph");
    ValueInfo info = graph.value(origin);
    info.name += suffix_of(made_by[i]);
    if (made_by[i] == ScheduledKind::kStore) info.device = kHostPlace;
    graph.new_result(std::move(info));
  }
  std::vector<Node> nodes;
  std::vector<bool> ran(graph.nodes().size());
  for (const ScheduledNode& scheduled : schedule.nodes) {
    if (scheduled.kind != ScheduledKind::kNode) {
      const ValueInfo& copy = graph.value(scheduled.outputs[0]);
      nodes.push_back(Node{CopyToDevice{}, copy.name, scheduled.inputs, scheduled.outputs, copy.device});
      continue;
    }
    const auto id = static_cast<size_t>(scheduled.node);
    Node node = graph.node(scheduled.node);
    node.inputs = scheduled.inputs;
    node.outputs = scheduled.outputs;
    if (!node.outputs.empty() && node.outputs.front() >= first_new)
      node.name = graph.value(node.outputs.front()).name;
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
