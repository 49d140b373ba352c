#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "runtime/graph/graph_view.h"
#include "runtime/onnx/merge_nodes.h"

namespace headroom::onnx {
namespace {

class MaskedSoftmaxes : private GraphView {
 public:
  // Nodes.
  struct Match {
    int softmax, is_nan, where;
  };

  MaskedSoftmaxes(const Graph& graph, const std::map<int, float>& scalars, std::span<const Value> keep)
      : GraphView(graph, keep), scalars_(scalars) {}

  std::optional<Match> match(int node) const {
    if (!op<Where>(node)) return {};
    const int result = input(node, 2);
    const Match found{maker(result), maker(input(node, 0)), node};
    const auto* const compare = op<Compare>(found.is_nan);
    if (!op<Softmax>(found.softmax) || !compare || compare->kind != CompareKind::kNotEqual) return {};
    const auto zero = scalars_.find(input(node, 1));
    const bool is_pattern = input(found.is_nan, 0) == result && input(found.is_nan, 1) == result &&
                            zero != scalars_.end() && zero->second == 0 &&
                            shape(output(node)) == shape(result) &&
                            only_reader(output(found.is_nan)) == node && !kept(result);
    const bool is_alone = std::all_of(readers(result).begin(), readers(result).end(),
                                      [&](int reader) { return reader == found.is_nan || reader == node; });
    return is_pattern && is_alone ? std::optional(found) : std::nullopt;
  }

  void rewrite(const Match& match, Rewrite& nodes) const {
    nodes.drop(match.softmax);
    nodes.drop(match.is_nan);
    nodes.put(match.where, Node{Softmax{.zero_nan_rows = true},
                                graph().node(match.softmax).name,
                                {input(match.softmax, 0)},
                                {output(match.where)}});
  }

 private:
  const std::map<int, float>& scalars_;
};

// Merges softmax(x + mask), with a mask smaller than x, into one node.
class AddedMasks : private GraphView {
 public:
  using GraphView::GraphView;

  struct Match {
    int softmax, add;
    int x, mask;  // values
  };

  std::optional<Match> match(int node) const {
    const auto* softmax = op<Softmax>(node);
    if (!softmax || graph().node(node).inputs.size() > 1 || softmax->scale != 1) return {};
    const int sum = input(node, 0), add = maker(sum);
    const auto* binary = op<Binary>(add);
    if (!binary || binary->kind != BinaryKind::kAdd || only_reader(sum) != node) return {};
    for (size_t i = 0; i < 2; ++i) {
      const Match found{node, add, input(add, i), input(add, 1 - i)};
      const Shape &x = shape(found.x), &mask = shape(found.mask);
      const bool is_smaller = x == shape(sum) && mask.elements() < x.elements();
      if (is_smaller && mask.last() == x.last() && on_one_device({node, add})) return found;
    }
    return {};
  }

  void rewrite(const Match& match, Rewrite& nodes) const {
    const Node& softmax = graph().node(match.softmax);
    nodes.drop(match.add);
    nodes.put(match.softmax, Node{softmax.op, softmax.name, {match.x, match.mask}, softmax.outputs});
  }
};

// Merges the scale into softmax of a scaled value, or of a product of scaled ones, as exporters write
// attention: the softmax then scales.
class ScaledSoftmaxes : private GraphView {
 public:
  using GraphView::GraphView;

  struct Match {
    int softmax;
    float factor = 1;
    std::map<int, Node> changed;  // nodes that read what was scaled
    std::vector<int> dropped;
  };

  std::optional<Match> match(int node) const {
    const auto* softmax = op<Softmax>(node);
    if (!softmax) return {};
    Match found{node, softmax->scale, {}, {}};
    take_scale(node, 0, found);
    const int x = found.changed.contains(node) ? found.changed.at(node).inputs[0] : input(node, 0);
    const int product = maker(x);
    if (op<MatMul>(product) && readers(x).size() == 1 && !kept(x)) {
      for (size_t i = 0; i < 2; ++i) take_scale(product, i, found);
    }
    return found.dropped.empty() ? std::nullopt : std::optional(std::move(found));
  }

  void rewrite(const Match& match, Rewrite& nodes) const {
    for (int node : match.dropped) nodes.drop(node);
    for (const auto& [node, changed] : match.changed) {
      if (node != match.softmax) nodes.put(node, changed);
    }
    const auto found = match.changed.find(match.softmax);
    Node softmax = found == match.changed.end() ? graph().node(match.softmax) : found->second;
    std::get<Softmax>(softmax.op).scale = match.factor;
    nodes.put(match.softmax, std::move(softmax));
  }

 private:
  // Lets `reader`, or the node that moves the scaled value before its operand i, read it unscaled.
  void take_scale(int reader, size_t i, Match& match) const {
    for (;;) {
      const int value = input(reader, i), node = maker(value);
      if (node < 0 || only_reader(value) != reader || !on_one_device({reader, node})) return;
      if (const auto* scale = op<Scale>(node)) {
        if (!std::isnormal(scale->factor)) return;
        const auto [changed, _] = match.changed.try_emplace(reader, graph().node(reader));
        changed->second.inputs[i] = input(node, 0);
        match.factor *= scale->factor;
        match.dropped.push_back(node);
        return;
      }
      if (!op<Transpose>(node) && !op<Reshape>(node)) return;
      reader = node;
      i = 0;
    }
  }
};

}  // namespace

int merge_softmaxes(Graph& graph, const std::map<int, float>& scalars, std::span<const Value> keep) {
  const int count = rewrite_matches(MaskedSoftmaxes(graph, scalars, keep), graph);
  const int masks = rewrite_matches(AddedMasks(graph, keep), graph);
  return count + masks + rewrite_matches(ScaledSoftmaxes(graph, keep), graph);
}

}  // namespace headroom::onnx
