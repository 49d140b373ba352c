#include <algorithm>
#include <optional>
#include <vector>

#include "runtime/graph/fuse_rules.h"
#include "runtime/graph/graph_view.h"

namespace headroom {
namespace {

// A value that is read as slices side by side, as the heads of attention are, has the sum of their gradients
// as its own: each padded with zeros to all of the value. That is their concatenation.
class SliceGradients : private GraphView {
 public:
  using GraphView::GraphView;

  struct Match {
    int root, axis;
    std::vector<int> gradients;  // nodes, by where their slices begin
    std::vector<int> sums;
  };

  std::optional<Match> match(int root) const {
    Match found{root, -1, {}, {}};
    if (!is_sum(root) || !collect(root, found)) return {};
    const Shape& whole = shape(output(root));
    for (int axis = 0; axis < whole.rank() && found.axis < 0; ++axis) {
      if (extent(found.gradients[0], axis) != whole[axis]) found.axis = axis;
    }
    if (found.axis < 0) return {};
    std::sort(found.gradients.begin(), found.gradients.end(),
              [&](int a, int b) { return begin(a, found.axis) < begin(b, found.axis); });
    int64_t end = 0;
    for (int gradient : found.gradients) {
      for (int axis = 0; axis < whole.rank(); ++axis) {
        if (axis != found.axis && extent(gradient, axis) != whole[axis]) return {};
      }
      if (begin(gradient, found.axis) != end) return {};
      end += extent(gradient, found.axis);
    }
    return end == whole[found.axis] ? std::optional(std::move(found)) : std::nullopt;
  }

  void rewrite(const Match& match, Rewrite& nodes) const {
    Node concat{Concat{match.axis}, graph().node(match.root).name, {}, graph().node(match.root).outputs};
    for (int gradient : match.gradients) {
      concat.inputs.push_back(input(gradient, 0));
      nodes.drop(gradient);
    }
    for (int sum : match.sums) nodes.drop(sum);
    nodes.put(match.root, std::move(concat));
  }

 private:
  bool is_sum(int node) const {
    const auto* binary = op<Binary>(node);
    return binary && binary->kind == BinaryKind::kAdd && shape(input(node, 0)) == shape(input(node, 1));
  }
  // The gradients of slices that a sum adds, which nobody else reads; false for a sum of anything else.
  bool collect(int sum, Match& match) const {
    for (size_t i = 0; i < 2; ++i) {
      const int term = input(sum, i), node = maker(term);
      if (node < 0 || only_reader(term) != sum || !on_one_device({sum, node})) return false;
      if (const auto* gradient = op<SliceGrad>(node)) {
        const auto& steps = gradient->steps;
        if (std::any_of(steps.begin(), steps.end(), [](int64_t step) { return step != 1; })) return false;
        match.gradients.push_back(node);
      } else {
        if (!is_sum(node) || !collect(node, match)) return false;
        match.sums.push_back(node);
      }
    }
    return true;
  }
  int64_t begin(int gradient, int axis) const {
    return op<SliceGrad>(gradient)->begin[static_cast<size_t>(axis)];
  }
  int64_t extent(int gradient, int axis) const { return shape(input(gradient, 0))[axis]; }
};

}  // namespace

int fuse_slice_gradients(Graph& graph, std::span<const Value> keep) {
  return rewrite_matches(SliceGradients(graph, keep), graph);
}

}  // namespace headroom
