#include "runtime/plan/given_again.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

namespace headroom {

std::vector<int> find_given_again(const Graph& graph) {
  using Operands = std::array<int, 5>;  // x, gamma, beta, mean, variance
  std::map<std::pair<Operands, float>, int> results;
  std::vector<int> again(graph.values().size(), -1);
  for (const Node& node : graph.nodes()) {
    const std::vector<int>& in = node.inputs;
    if (const auto* apply = std::get_if<BatchNormApply>(&node.op); apply && apply->relu && in.size() == 5) {
      results[{{in[0], in[1], in[2], in[3], in[4]}, apply->epsilon}] = node.outputs[0];
    }
    const auto* gradient = std::get_if<BatchNormGrad>(&node.op);
    if (!gradient || !gradient->again) continue;
    const auto found = results.find({{in[1], in[2], in[5], in[3], in[4]}, gradient->epsilon});
    if (found != results.end()) again[found->second] = node.outputs[3];
  }
  return again;
}

std::vector<int> find_restorers(const Graph& graph) {
  constexpr size_t kStatistics = 3;  // mean and variance from there on in a norm, which no two norms share
  std::vector<int> norm_of(graph.values().size(), -1), restorers(graph.values().size(), -1);
  const auto result_of = [&](int value) -> int& { return norm_of[value]; };
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    int result = -1;
    if (const auto* apply = std::get_if<BatchNormApply>(&node.op); apply && !apply->compressed) {
      result_of(node.inputs[kStatistics]) = node.outputs[0];
      if (apply->compresses && node.inputs.size() == 5) result_of(node.outputs[1]) = node.outputs[0];
    } else if (apply) {
      result = result_of(node.inputs[0]);
    } else if (std::holds_alternative<ConvNormApply>(node.op)) {
      result = result_of(node.inputs[kStatistics + 1]);
    }
    if (result >= 0) restorers[result] = static_cast<int>(i);
  }
  return restorers;
}

NeededNodes with_readers_behind(const Graph& graph, const NeededNodes& nodes) {
  constexpr int kNever = std::numeric_limits<int>::max();
  const std::vector<int> again = find_given_again(graph);
  std::vector<int> maker(graph.values().size(), -1), first_reader(graph.values().size(), kNever);
  const auto count = static_cast<int>(nodes.pure.size());
  const auto node_at = [&](int position) -> const Node& { return graph.node(nodes.pure[position]); };
  for (int position = 0; position < count; ++position) {
    for (const int output : node_at(position).outputs) maker[output] = position;
    for (const int input : node_at(position).inputs) {
      int& first = first_reader[input];
      first = std::min(first, position);
    }
  }
  std::vector<std::vector<int>> behind(nodes.pure.size());  // by position
  std::vector<bool> is_moved(nodes.pure.size());
  for (int position = 0; position < count; ++position) {
    const Node& node = node_at(position);
    if (std::holds_alternative<Reshape>(node.op) || std::holds_alternative<AllReduce>(node.op) ||
        std::holds_alternative<CopyToDevice>(node.op)) {
      continue;
    }
    int giver = -1;
    for (const int input : node.inputs) {
      const int value = again[input];
      if (value >= 0) giver = std::max(giver, maker[value]);
    }
    const bool nobody_waits =
        std::ranges::all_of(node.outputs, [&](int output) { return first_reader[output] > giver; });
    if (giver <= position || !nobody_waits) continue;
    behind[giver].push_back(position);
    is_moved[position] = true;
  }
  NeededNodes result{{}, nodes.updates};
  const auto put = [&](int position) { result.pure.push_back(nodes.pure[position]); };
  for (int position = 0; position < count; ++position) {
    if (is_moved[position]) continue;
    put(position);
    for (const int reader : behind[position]) put(reader);
  }
  return result;
}

}  // namespace headroom
