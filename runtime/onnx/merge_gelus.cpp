#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <set>
#include <vector>

#include "runtime/graph/graph_view.h"
#include "runtime/onnx/merge_nodes.h"

namespace headroom::onnx {
namespace {

// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x x x))), the longest way to write it, has ten nodes.
constexpr size_t kMaxNodes = 12;

// Gelu(x) of Hendrycks, Gimpel 2016, and its approximation there.
double gelu_of(UnaryKind kind, double x) {
  if (kind == UnaryKind::kGelu) return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

std::optional<double> unary_of(const Unary& op, double x) {
  switch (op.kind) {
    case UnaryKind::kErf:
      return std::erf(x);
    case UnaryKind::kTanh:
      return std::tanh(x);
    case UnaryKind::kPower:
      return std::pow(x, static_cast<double>(op.alpha));
    default:
      return std::nullopt;
  }
}

std::optional<double> binary_of(BinaryKind kind, double a, double b) {
  switch (kind) {
    case BinaryKind::kAdd:
      return a + b;
    case BinaryKind::kSub:
      return a - b;
    case BinaryKind::kMul:
      return a * b;
    case BinaryKind::kDiv:
      return a / b;
    case BinaryKind::kPow:
      return std::pow(a, b);
    default:
      return std::nullopt;
  }
}

// Elementwise nodes that compute y of x.
struct Expression {
  int x, y;  // values
  std::set<int> nodes = {};
};

class Gelus : private GraphView {
 public:
  struct Match {
    Expression expression;
    UnaryKind kind;
  };

  Gelus(const Graph& graph, const std::map<int, float>& scalars, std::span<const Value> keep)
      : GraphView(graph, keep), scalars_(scalars) {}

  // The shortest expression around this node, an erf or a tanh, that is a gelu.
  std::optional<Match> match(int node) const {
    if (!is_middle(node)) return {};
    const UnaryKind kind = op<Unary>(node)->kind == UnaryKind::kErf ? UnaryKind::kGelu : UnaryKind::kTanhGelu;
    std::set<int> candidates;
    add_operands(node, candidates);
    int last = node;
    for (size_t i = 0; i < kMaxNodes && last >= 0 && is_elementwise(last); ++i) {
      if (last != node && is_middle(last)) break;
      for (const int x : candidates) {
        Expression expression{x, output(last)};
        if (shape(x) == shape(expression.y) && collect(expression, expression.y, node) &&
            is_closed(expression) && computes(expression, kind))
          return Match{std::move(expression), kind};
      }
      last = only_reader(output(last));
    }
    return {};
  }

  void rewrite(const Match& match, Rewrite& nodes) const {
    const int last = maker(match.expression.y);
    for (const int node : match.expression.nodes) nodes.drop(node);
    nodes.put(last,
              Node{Unary{match.kind}, graph().node(last).name, {match.expression.x}, {match.expression.y}});
  }

 private:
  bool is_elementwise(int node) const { return op<Unary>(node) || op<Scale>(node) || op<Binary>(node); }

  // The values that the node is computed of by elementwise nodes, nearest first as far as there are few.
  void add_operands(int node, std::set<int>& values) const {
    if (node < 0 || !is_elementwise(node)) return;
    for (const int value : graph().node(node).inputs) {
      if (values.size() > kMaxNodes || scalars_.contains(value) || !values.insert(value).second) continue;
      add_operands(maker(value), values);
    }
  }

  // Returns true for an erf or a tanh; a gelu has one of them.
  bool is_middle(int node) const {
    const auto* const unary = op<Unary>(node);
    return unary && (unary->kind == UnaryKind::kErf || unary->kind == UnaryKind::kTanh);
  }

  // Finds the nodes that compute `value` from x and constants around `middle`; returns false if anything else
  // is needed.
  bool collect(Expression& expression, int value, int middle) const {
    if (value == expression.x || scalars_.contains(value)) return true;
    const int node = maker(value);
    if (node < 0 || !is_elementwise(node) || (node != middle && is_middle(node))) return false;
    if (!expression.nodes.insert(node).second) return true;
    if (expression.nodes.size() > kMaxNodes) return false;
    const std::vector<int>& operands = graph().node(node).inputs;
    return std::ranges::all_of(operands, [&](int i) { return collect(expression, i, middle); });
  }

  bool computes(const Expression& expression, UnaryKind kind) const {
    constexpr double kRounding =
        1e-6;  // rounding of the constants, which are f32; the two gelus differ by 5e-4
    for (const double x : {-4.5, -2.2, -1.0, -0.3, 0.1, 0.7, 1.4, 3.1}) {
      const std::optional<double> y = evaluate(expression, x);
      const double wanted = gelu_of(kind, x);
      if (!y || !(std::abs(*y - wanted) <= kRounding * std::max(1.0, std::abs(wanted)))) return false;
    }
    return true;
  }

  // Returns y for that x, if every node is of a known kind.
  std::optional<double> evaluate(const Expression& expression, double x) const {
    std::map<int, double> numbers = {{expression.x, x}};
    for (const int node : expression.nodes) {  // by number, thus in the order in which they run
      const auto operand = [&](size_t i) {
        const int value = input(node, i);
        const auto found = numbers.find(value);
        return found != numbers.end() ? found->second : static_cast<double>(scalars_.at(value));
      };
      std::optional<double> y;
      if (const auto* unary = op<Unary>(node)) y = unary_of(*unary, operand(0));
      if (const auto* scale = op<Scale>(node)) y = static_cast<double>(scale->factor) * operand(0);
      if (const auto* binary = op<Binary>(node)) y = binary_of(binary->kind, operand(0), operand(1));
      if (!y) return std::nullopt;
      numbers[output(node)] = *y;
    }
    return numbers.at(expression.y);
  }

  // Returns true if no other node reads the intermediate values of y.
  bool is_closed(const Expression& expression) const {
    return std::ranges::all_of(expression.nodes, [&](int node) {
      const int value = output(node);
      if (value == expression.y) return true;
      return !kept(value) && std::all_of(readers(value).begin(), readers(value).end(),
                                         [&](int reader) { return expression.nodes.contains(reader); });
    });
  }

  const std::map<int, float>& scalars_;
};

}  // namespace

int merge_gelus(Graph& graph, const std::map<int, float>& scalars, std::span<const Value> keep) {
  return rewrite_matches(Gelus(graph, scalars, keep), graph);
}

}  // namespace headroom::onnx
