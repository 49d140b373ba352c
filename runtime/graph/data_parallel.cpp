#include "runtime/graph/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "device/device_name.h"
#include "runtime/graph/update_gradients.h"

namespace headroom {
namespace {

// Positions of the gradients among an optimizer's operands.
std::vector<size_t> gradient_positions(const Node& node) {
  const UpdateOperands operands = update_operands(node.op);
  std::vector<size_t> positions;
  for (size_t i = operands.shared + 1; i < node.inputs.size(); i += operands.per_variable)
    positions.push_back(i);
  return positions;
}

// A value and the position of the node that makes it, -1 if there is none.
struct Gradient {
  int made_at;
  int value;
  auto operator<=>(const Gradient&) const = default;
};

// The gradients of all optimizers in the order in which they are made, each once.
std::vector<Gradient> find_gradients(const std::vector<Node>& nodes, size_t values) {
  std::vector<int> made_at(values, -1);
  std::vector<Gradient> gradients;
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node node = nodes[i];
    for (const int output : node.outputs) made_at[static_cast<size_t>(output)] = static_cast<int>(i);
    if (gradient_scale_of(node.op) == nullptr) continue;
    for (const size_t position : gradient_positions(node)) {
      const int value = node.inputs[position];
      gradients.push_back({made_at[static_cast<size_t>(value)], value});
    }
  }
  std::ranges::sort(gradients);
  gradients.erase(std::unique(gradients.begin(), gradients.end()), gradients.end());
  return gradients;
}

// Returns the gradients by device, in their order. A replica counts its devices from its first, which also
// has the nodes that name none.
std::vector<std::vector<Gradient>> group_by_device(const std::vector<Gradient>& gradients,
                                                   const Graph& graph) {
  std::vector<std::pair<DeviceName, std::vector<Gradient>>> groups;
  for (const Gradient& gradient : gradients) {
    const std::string& device = graph.value(gradient.value).device;
    const DeviceName name = device.empty() ? DeviceName{} : parse_device_name(device);
    auto group = std::ranges::find_if(groups, [&](const auto& g) { return g.first == name; });
    if (group == groups.end()) group = groups.insert(groups.end(), {name, {}});
    group->second.push_back(gradient);
  }
  std::vector<std::vector<Gradient>> result;
  for (auto& group : groups) result.push_back(std::move(group.second));
  return result;
}

std::vector<std::vector<Gradient>> fill_buckets(const std::vector<Gradient>& gradients, const Graph& graph,
                                                const BucketSettings& settings) {
  std::vector<std::vector<Gradient>> buckets;
  int64_t room = 0;  // in the last bucket
  for (const Gradient& gradient : gradients) {
    if (room <= 0) {
      room = buckets.empty() ? settings.first_bytes : settings.bytes;
      buckets.emplace_back();
    }
    buckets.back().push_back(gradient);
    room -= graph.value(gradient.value).spec.bytes();
  }
  return buckets;
}

}  // namespace

void reduce_gradients(Graph& graph, int replicas, const BucketSettings& settings) {
  if (replicas < 1) throw InvalidArgument(fmt::format("{} replicas: at least one is needed", replicas));
  if (settings.first_bytes < 1 || settings.bytes < 1) {
    throw InvalidArgument(fmt::format("buckets of {} and {} bytes: at least one byte is needed",
                                      settings.first_bytes, settings.bytes));
  }
  if (replicas == 1) return;
  std::vector<Node> nodes(graph.nodes().begin(), graph.nodes().end());
  const std::vector<Gradient> gradients = find_gradients(nodes, graph.values().size());
  // Each reduction is added to the graph, which makes its results, and then takes its place among the nodes.
  std::vector<int> reduced(graph.values().size(), -1);
  std::vector<std::vector<Node>> behind(nodes.size() + 1);  // by position + 1 of the node they follow
  for (const std::vector<Gradient>& of_device : group_by_device(gradients, graph)) {
    std::vector<Value> previous;
    for (const std::vector<Gradient>& bucket : fill_buckets(of_device, graph, settings)) {
      const AllReduce op{replicas, !previous.empty()};
      std::vector<Value> operands;
      if (op.follows) operands.push_back(previous[0]);
      for (const Gradient& gradient : bucket) operands.push_back({&graph, gradient.value});
      const BackwardScope backward(graph, operands.back());
      previous = graph.add(op, operands);
      for (size_t i = 0; i < bucket.size(); ++i)
        reduced[static_cast<size_t>(bucket[i].value)] = previous[i].id;
      behind[static_cast<size_t>(bucket.back().made_at + 1)].push_back(graph.nodes().back());
    }
  }

  std::vector<Node> result = behind[0];
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node& node = nodes[i];
    if (float* scale = gradient_scale_of(node.op)) {
      *scale /= static_cast<float>(replicas);  // scale of the sum over all
      for (const size_t position : gradient_positions(node)) {
        int& gradient = node.inputs[position];
        gradient = reduced[static_cast<size_t>(gradient)];
      }
    }
    result.push_back(std::move(node));
    result.insert(result.end(), behind[i + 1].begin(), behind[i + 1].end());
  }
  graph.replace_nodes(std::move(result));
}

}  // namespace headroom
