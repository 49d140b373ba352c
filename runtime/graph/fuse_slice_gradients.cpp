#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/graph/fuse_rules.h"
#include "runtime/graph/graph_view.h"

namespace headroom {
namespace {

// A value that is read as adjacent slices, as the heads of attention are, has as its gradient the sum of
// their gradients, each padded with zeros to the whole value. That sum is their concatenation.
class SliceGradients : private GraphView {
 public:
  SliceGradients(const Graph& graph, std::span<const Value> keep)
      : GraphView(graph, keep), elements_(graph.nodes().size(), kOther) {
    for (int node = 0; node < node_count(); ++node) elements_[static_cast<size_t>(node)] = count(node);
  }

  struct Match {
    int root, axis;
    std::vector<int> gradients;  // nodes, by where their slices begin
    std::vector<int> sums;
  };

  std::optional<Match> match(int root) const {
    if (!op<Binary>(root)) return {};
    const Shape& whole = shape(output(root));
    // At most one of the sums in a chain has all of the value, so each gradient is collected once.
    if (elements_[static_cast<size_t>(root)] != whole.elements() || whole.elements() == 0) return {};
    Match found = collect(root);
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
  // Returns the number of elements of the slices whose gradients a node adds and no other node reads; kOther
  // for a sum of anything else.
  int64_t count(int node) const {
    if (const auto* gradient = op<SliceGrad>(node)) {
      const auto& steps = gradient->steps;
      const bool is_whole = std::all_of(steps.begin(), steps.end(), [](int64_t step) { return step == 1; });
      return is_whole ? shape(input(node, 0)).elements() : kOther;
    }
    if (!is_sum(node)) return kOther;
    int64_t elements = 0;
    for (size_t i = 0; i < 2; ++i) {
      const int term = input(node, i), made_by = maker(term);
      if (made_by < 0 || only_reader(term) != node || !on_one_device({node, made_by})) return kOther;
      if (elements_[static_cast<size_t>(made_by)] == kOther) return kOther;
      elements += elements_[static_cast<size_t>(made_by)];
    }
    return elements <= shape(output(node)).elements() ? elements : kOther;  // they would overlap
  }
  Match collect(int root) const {
    Match match{root, -1, {}, {}};
    std::vector<int> open = {root};  // a chain may be longer than the stack of calls is deep
    while (!open.empty()) {
      const int sum = open.back();
      open.pop_back();
      if (sum != root) match.sums.push_back(sum);
      for (size_t i = 0; i < 2; ++i) {
        const int node = maker(input(sum, i));
        (op<SliceGrad>(node) ? match.gradients : open).push_back(node);
      }
    }
    return match;
  }
  int64_t begin(int gradient, int axis) const {
    return op<SliceGrad>(gradient)->begin[static_cast<size_t>(axis)];
  }
  int64_t extent(int gradient, int axis) const { return shape(input(gradient, 0))[axis]; }

  static constexpr int64_t kOther = -1;
  std::vector<int64_t> elements_;  // by node
};

}  // namespace

int fuse_slice_gradients(Graph& graph, std::span<const Value> keep) {
  return rewrite_matches(SliceGradients(graph, keep), graph);
}

}  // namespace headroom
