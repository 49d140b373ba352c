#include <algorithm>
#include <optional>

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

}  // namespace

int merge_softmaxes(Graph& graph, const std::map<int, float>& scalars, std::span<const Value> keep) {
  return rewrite_matches(MaskedSoftmaxes(graph, scalars, keep), graph);
}

}  // namespace headroom::onnx
