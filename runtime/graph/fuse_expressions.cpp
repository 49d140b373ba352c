#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/graph/fuse_rules.h"
#include "runtime/graph/graph_view.h"

namespace headroom {
namespace {

// A value in memory that a formula reads, at the result's own index or, through a window, begin after it.
struct Operand {
  int value;
  std::optional<int64_t> begin = {};
  bool operator==(const Operand&) const = default;
};

// The computation of a value: values in memory, and instructions whose last one gives it. Without any, it is
// the only operand.
struct Formula {
  std::vector<Operand> operands;
  std::vector<Instruction> instructions;  // a and b count the operands first, as in an Expression
  std::vector<int> results;               // the value that each instruction computes; -1: a part of one
  int axis_from_end = -1;                 // of the windows; -1: there are none

  bool is_short_enough() const {
    return operands.size() <= Expression::kMaxOperands && instructions.size() <= Expression::kMaxInstructions;
  }
  bool reads(int value) const {
    return std::ranges::any_of(operands, [&](const Operand& x) { return x.value == value; });
  }
};

std::optional<Instruction> instruction_of(const Op& op) {
  using Code = Instruction::Code;
  std::optional<Instruction> step;
  if (const auto* unary = std::get_if<Unary>(&op))
    step = {Code::kUnary, static_cast<uint8_t>(unary->kind), 0, 0, unary->alpha, unary->beta};
  else if (const auto* slope = std::get_if<UnaryGrad>(&op))
    step = {Code::kUnaryGrad, static_cast<uint8_t>(slope->kind), 0, 1, slope->alpha, slope->beta};
  else if (const auto* scale = std::get_if<Scale>(&op))
    step = {Code::kScale, 0, 0, 0, scale->factor};
  else if (const auto* binary = std::get_if<Binary>(&op))
    step = {Code::kBinary, static_cast<uint8_t>(binary->kind), 0, 1};
  return step && is_short(*step) ? step : std::nullopt;
}

// Appends formulas to one another, each value once.
class FormulaBuilder {
 public:
  // Returns the number of the operand, as an instruction names it until finish().
  int operand(const Operand& x) {
    const auto at = std::ranges::find(formula_.operands, x) - formula_.operands.begin();
    if (at == std::ssize(formula_.operands)) formula_.operands.push_back(x);
    return static_cast<int>(at);
  }
  int result(int value) const {
    const auto found = std::ranges::find(formula_.results, value);
    return value < 0 || found == formula_.results.end()
               ? -1
               : kFirstResult + static_cast<int>(found - formula_.results.begin());
  }
  int append(Instruction step, int a, int b, int value) {
    steps_.push_back({step, a, b});
    formula_.instructions.push_back(step);
    formula_.results.push_back(value);
    return kFirstResult + static_cast<int>(formula_.results.size()) - 1;
  }
  // Returns true if windows along that axis can be part of this formula.
  bool takes_axis(int axis_from_end) const {
    return axis_from_end < 0 || formula_.axis_from_end < 0 || axis_from_end == formula_.axis_from_end;
  }
  // Appends what a value is computed by, and returns its number.
  int inlined(const Formula& other) {
    formula_.axis_from_end = std::max(formula_.axis_from_end, other.axis_from_end);
    std::vector<int> numbers;
    for (const Operand& x : other.operands) numbers.push_back(operand(x));
    for (size_t i = 0; i < other.instructions.size(); ++i) {
      const Instruction& step = other.instructions[i];
      const int known = result(other.results[i]);
      numbers.push_back(known >= 0 ? known
                                   : append(step, numbers[step.a], numbers[step.b], other.results[i]));
    }
    return numbers.back();
  }
  Formula finish() {
    const auto number = [&](int n) {
      return static_cast<uint8_t>(
          n < kFirstResult ? n : n - kFirstResult + static_cast<int>(formula_.operands.size()));
    };
    for (size_t i = 0; i < steps_.size(); ++i) {
      formula_.instructions[i].a = number(steps_[i].a);
      formula_.instructions[i].b = number(steps_[i].b);
    }
    return std::move(formula_);
  }
  const Formula& formula() const { return formula_; }

 private:
  static constexpr int kFirstResult = 64;  // more than an expression's operands
  struct Step {
    Instruction step;
    int a, b;
  };

  Formula formula_;
  std::vector<Step> steps_;
};

// Computes values where they are read, instead of storing them, as far as that moves fewer bytes.
class Expressions : private GraphView {
 public:
  Expressions(const Graph& graph, std::span<const Value> keep)
      : GraphView(graph, keep),
        formulas_(graph.values().size()),
        is_inlined_(graph.values().size()),
        is_stored_(graph.values().size()),
        is_needed_(graph.nodes().size()),
        is_gone_(graph.nodes().size()),
        is_read_backward_(graph.values().size()),
        changed_at_(graph.values().size(), std::numeric_limits<int>::max()) {
    for (int i = node_count(); i-- > 0;) {
      const Node& node = graph.node(i);
      for (const int at : mutated_inputs(node.op, node.inputs.size()))
        changed_at_[static_cast<size_t>(node.inputs[static_cast<size_t>(at)])] = i;
      is_needed_[static_cast<size_t>(i)] = leads_somewhere(i);
      if (!is_needed(i) || !is_backward(i)) continue;
      for (const int x : node.inputs) is_read_backward_[static_cast<size_t>(x)] = true;
    }
  }

  void run(Graph& changed) {
    for (int i = 0; i < node_count(); ++i) visit(i);
    // A value that some reader takes from memory is stored; so is all that its formula reads.
    Rewrite nodes(graph());
    for (int i = node_count(); i-- > 0;) {
      if (is_needed(i)) rewrite(i, nodes);
    }
    drop_unneeded(nodes);
    nodes.apply(changed);
  }

 private:
  bool is_needed(int node) const { return is_needed_[static_cast<size_t>(node)]; }
  // False for gradients of constants, which nothing reads. Nodes after this one are known.
  bool leads_somewhere(int i) const {
    const std::vector<int>& outputs = graph().node(i).outputs;
    return outputs.empty() || std::ranges::any_of(outputs, [&](int y) {
             const auto next = readers(y);
             return kept(y) || (next.empty() && !is_backward(i)) ||
                    std::ranges::any_of(next, [&](int reader) { return is_needed(reader); });
           });
  }
  // Drops nodes that nothing needs and that read what has gone.
  void drop_unneeded(Rewrite& nodes) {
    for (int i = 0; i < node_count(); ++i) {
      const std::vector<int>& inputs = graph().node(i).inputs;
      const auto is_gone = [&](int x) { return maker(x) >= 0 && is_gone_[static_cast<size_t>(maker(x))]; };
      if (is_needed(i) || std::ranges::none_of(inputs, is_gone)) continue;
      drop(i, nodes);
    }
  }
  void drop(int i, Rewrite& nodes) {
    is_gone_[static_cast<size_t>(i)] = true;
    nodes.drop(i);
  }
  bool is_backward(int node) const {
    const std::vector<int>& outputs = graph().node(node).outputs;
    return !outputs.empty() && graph().value(outputs[0]).backward;
  }
  const Formula* formula(int value) const {
    const auto& known = formulas_[static_cast<size_t>(value)];
    return known ? &*known : nullptr;
  }
  bool is_float(int value) const { return graph().value(value).spec.dtype == DType::kF32; }

  // Finds the formula of the node's result, and decides if readers take it instead of the result.
  void visit(int i) {
    const Node& node = graph().node(i);
    if (node.outputs.size() != 1 || !is_float(output(i)) || shape(output(i)).rank() == 0) return;
    const int y = output(i);
    std::optional<Formula> found = moves(i) ? formula_of_moved(i) : formula_of(i);
    if (!found) return;
    formulas_[static_cast<size_t>(y)] = std::move(found);
    is_inlined_[static_cast<size_t>(y)] = is_cheaper_inlined(i);
  }

  std::optional<Formula> formula_of(int i) const {
    const Node& node = graph().node(i);
    const std::optional<Instruction> step = instruction_of(node.op);
    if (!step) return {};
    FormulaBuilder joined;
    int numbers[2] = {};
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const int x = node.inputs[k];
      if (!is_float(x)) return {};
      numbers[k] = reads_formula(i, x, joined) ? joined.inlined(*formula(x))
                                               : joined.operand({before_broadcast(i, x)});
    }
    joined.append(*step, numbers[0], node.inputs.size() > 1 ? numbers[1] : 0, output(i));
    Formula found = joined.finish();
    if (!found.is_short_enough() || !spans_result(found, shape(output(i)))) return alone(i, *step);
    return found;
  }
  std::optional<Formula> alone(int i, const Instruction& step) const {
    FormulaBuilder joined;
    const Node& node = graph().node(i);
    const int a = joined.operand({node.inputs[0]}), b = joined.operand({node.inputs.back()});
    joined.append(step, a, b, output(i));
    return joined.finish();
  }

  // Values that a node puts together along one axis, and where each begins in the result.
  struct Part {
    int value;
    int64_t begin;
  };
  struct Moved {
    int axis = -1;
    std::vector<Part> parts;
  };
  // The parts of a concatenation, of a slice and of a padded value; nothing for other nodes.
  std::optional<Moved> moves(int i) const {
    const Node& node = graph().node(i);
    if (const auto* concat = op<Concat>(i)) {
      Moved moved{concat->axis, {}};
      int64_t begin = 0;
      for (const int x : node.inputs) {
        moved.parts.push_back({x, begin});
        begin += shape(x)[concat->axis];
      }
      return moved;
    }
    const auto along_one_axis = [&](const auto& op, int64_t sign) -> std::optional<Moved> {
      const auto axis = sliced_axis(shape(node.inputs[0]), shape(node.outputs[0]), op.steps);
      if (!axis) return {};
      return Moved{*axis, {{node.inputs[0], sign * op.begin[static_cast<size_t>(*axis)]}}};
    };
    if (const auto* slice = op<Slice>(i)) return along_one_axis(*slice, -1);
    if (const auto* padded = op<SliceGrad>(i)) return along_one_axis(*padded, 1);
    return {};
  }

  std::optional<Formula> formula_of_moved(int i) const {
    const Moved moved = *moves(i);
    const Shape& whole = shape(output(i));
    const int axis_from_end = whole.rank() - 1 - moved.axis;
    FormulaBuilder joined;
    int sum = -1;
    for (const auto& [x, begin] : moved.parts) {
      constexpr int64_t kExactInFloat = int64_t{1} << 24;  // the bounds of kInside are floats
      if (!is_float(x) || std::max(shape(x)[moved.axis], whole[moved.axis]) > kExactInFloat) return {};
      const bool is_read =
          is_inlined_[static_cast<size_t>(x)] && on_one_device({maker(x), i}) && stays(*formula(x), i);
      Formula part = is_read ? *formula(x) : Formula{{{x}}, {}, {}};
      if (part.axis_from_end >= 0 && part.axis_from_end != axis_from_end) return {};
      move(part, shape(x), axis_from_end, begin);
      int number = joined.inlined(part);
      const int64_t end = begin + shape(x)[moved.axis];
      if ((begin > 0 || end < whole[moved.axis]) && !is_zero_outside(part, begin, end, whole[moved.axis])) {
        number = joined.append(
            {Instruction::Code::kInside, 0, 0, 0, static_cast<float>(begin), static_cast<float>(end)}, number,
            0, -1);
      }
      constexpr Instruction kSum{Instruction::Code::kBinary, static_cast<uint8_t>(BinaryKind::kAdd)};
      sum = sum < 0 ? number : joined.append(kSum, sum, number, -1);
    }
    Formula found = joined.finish();
    found.axis_from_end = axis_from_end;
    return found.is_short_enough() ? std::optional(std::move(found)) : std::nullopt;
  }
  // Lets a formula of a value of this shape begin elsewhere along an axis.
  void move(Formula& formula, const Shape& own, int axis_from_end, int64_t begin) const {
    for (Operand& x : formula.operands) {
      const Shape& from = shape(x.value);
      const bool spans = from.rank() > axis_from_end &&
                         from[from.rank() - 1 - axis_from_end] == own[own.rank() - 1 - axis_from_end];
      if (x.begin || spans || formula.instructions.empty()) x.begin = x.begin.value_or(0) + begin;
    }
    for (Instruction& step : formula.instructions) {
      if (step.code != Instruction::Code::kInside) continue;
      step.alpha += static_cast<float>(begin);
      step.beta += static_cast<float>(begin);
    }
    std::ranges::fill(formula.results, -1);
    formula.axis_from_end = axis_from_end;
  }
  // Returns true if a formula is 0 outside [begin, end) of an axis with `extent`, as its operand has a window
  // there.
  bool is_zero_outside(const Formula& formula, int64_t begin, int64_t end, int64_t extent) const {
    if (formula.operands.size() != 1 || !formula.operands[0].begin) return false;
    const int64_t first = *formula.operands[0].begin;
    const Shape& own = shape(formula.operands[0].value);
    const int64_t last = first + own[own.rank() - 1 - formula.axis_from_end];
    return std::max<int64_t>(0, first) == begin && std::min(extent, last) == end &&
           std::ranges::all_of(formula.instructions, [](const Instruction& step) {
             return step.code == Instruction::Code::kScale && std::isfinite(step.alpha);
           });
  }
  // Returns true if nothing changes what a formula reads before node i.
  bool stays(const Formula& formula, int i) const {
    return std::ranges::all_of(
        formula.operands, [&](const Operand& x) { return changed_at_[static_cast<size_t>(x.value)] > i; });
  }

  // Returns the value that a broadcast makes x of, if node i can read that: expressions broadcast their
  // operands themselves.
  int before_broadcast(int i, int x) const {
    const int broadcast = maker(x);
    if (!op<BroadcastTo>(broadcast) || !on_one_device({broadcast, i})) return x;
    const int from = input(broadcast, 0);
    return is_float(from) && changed_at_[static_cast<size_t>(from)] > i ? from : x;
  }

  // Returns true if node i computes its operand x from what x is made of.
  bool reads_formula(int i, int x, const FormulaBuilder& joined) const {
    if (!is_inlined_[static_cast<size_t>(x)] || shape(x) != shape(output(i)) ||
        !on_one_device({maker(x), i}) || !joined.takes_axis(formula(x)->axis_from_end))
      return false;
    FormulaBuilder longer = joined;
    longer.inlined(*formula(x));
    const Formula& both = longer.formula();
    const auto operands =
        static_cast<int>(both.operands.size()) + static_cast<int>(graph().node(i).inputs.size()) - 1;
    if (operands > Expression::kMaxOperands || both.instructions.size() >= Expression::kMaxInstructions)
      return false;
    return stays(both, i);
  }

  bool spans_result(const Formula& formula, const Shape& result) const {
    Shape spanned;
    const Windows windows = windows_of(formula, result);
    for (size_t i = 0; i < formula.operands.size(); ++i) {
      Shape next;
      if (!broadcast(spanned, windows.shape_of(i, shape(formula.operands[i].value)), &next)) return false;
      spanned = next;
    }
    return spanned == result;
  }

  // Returns true if reading what the result is made of costs all its readers together less than writing and
  // reading the result does, and keeps no more alive. Counts tensors of the result's size: others are
  // small, and the sum must not depend on the size of a batch.
  bool is_cheaper_inlined(int i) const {
    const int y = output(i);
    if (kept(y) || readers(y).empty()) return false;
    const std::vector<Source> sources = large_sources(*formula(y), y);
    double added = 0, stored = 1;
    for (const Source& source : sources) stored += source.share;
    bool is_read = false;
    for (const int reader : readers(y)) {
      if (!is_needed(reader)) continue;
      const Node& node = graph().node(reader);
      const bool is_elementwise =
          instruction_of(node.op) && node.outputs.size() == 1 && shape(node.outputs[0]) == shape(y);
      if ((!is_elementwise && !op<Reduce>(reader) && !moves(reader)) || !on_one_device({i, reader}))
        return false;
      added += added_by(node, y, sources);
      stored += 1;
      is_read = true;
    }
    return is_read && added < stored && !keeps_more_alive(i, sources);
  }

  // A value that a formula reads, and how much of it by the size of the result.
  struct Source {
    int value;
    double share;
  };
  std::vector<Source> large_sources(const Formula& made_of, int y) const {
    std::vector<Source> large;
    const auto whole = static_cast<double>(shape(y).elements());
    for (const Operand& x : made_of.operands) {
      const auto own = static_cast<double>(shape(x.value).elements());
      const bool is_known =
          std::ranges::any_of(large, [&](const Source& other) { return other.value == x.value; });
      if ((own == whole || x.begin) && !is_known) large.push_back({x.value, std::min(1.0, own / whole)});
    }
    return large;
  }

  // Returns how much of the sources of y a reader of y does not read anyway.
  double added_by(const Node& reader, int y, const std::vector<Source>& sources) const {
    double added = 0;
    for (const Source& source : sources) {
      const bool is_read = std::ranges::any_of(reader.inputs, [&](int other) {
        if (other == y) return false;
        const Formula* made_of = is_inlined_[static_cast<size_t>(other)] ? formula(other) : nullptr;
        return other == source.value || (made_of && made_of->reads(source.value));
      });
      if (!is_read) added += source.share;
    }
    return added;
  }

  // Returns true if the result waits for the backward pass, and its sources would not unless readers take
  // them instead: then no more than one of them may.
  bool keeps_more_alive(int i, const std::vector<Source>& sources) const {
    if (is_backward(i) || !is_read_backward_[static_cast<size_t>(output(i))]) return false;
    return std::ranges::count_if(sources, [&](const Source& source) {
             return maker(source.value) >= 0 && !is_read_backward_[static_cast<size_t>(source.value)];
           }) > 1;
  }

  // Readers come before what they read, so that is_stored_ is known.
  void rewrite(int i, Rewrite& nodes) {
    const Node& node = graph().node(i);
    if (const Formula* terms = op<Reduce>(i) ? terms_of(i) : nullptr) {
      const Expression of = expression_of(*terms, shape(input(i, 0)));
      nodes.put(i, Node{ReducedExpression{of, *op<Reduce>(i)}, node.name, stored(*terms), node.outputs});
      return;
    }
    const Formula* made_of = node.outputs.size() == 1 ? formula(output(i)) : nullptr;
    const bool may_go = op<BroadcastTo>(i) || (made_of && is_inlined_[static_cast<size_t>(output(i))]);
    if (may_go && !kept(output(i)) && !is_stored_[static_cast<size_t>(output(i))] &&
        !readers(output(i)).empty())
      return drop(i, nodes);
    const bool is_joined = made_of && ((instruction_of(node.op) && made_of->instructions.size() > 1) ||
                                       is_other_than(node, *made_of));
    if (is_joined) {
      nodes.put(i,
                Node{expression_of(*made_of, shape(output(i))), node.name, stored(*made_of), node.outputs});
      return;
    }
    for (const int x : node.inputs) is_stored_[static_cast<size_t>(x)] = true;
  }
  // The values that a formula reads, which are stored then.
  std::vector<int> stored(const Formula& formula) {
    std::vector<int> values;
    for (const Operand& x : formula.operands) {
      is_stored_[static_cast<size_t>(x.value)] = true;
      values.push_back(x.value);
    }
    return values;
  }
  // The formula that node i reduces; null if it reads a stored value.
  const Formula* terms_of(int i) const {
    const int x = input(i, 0);
    return is_inlined_[static_cast<size_t>(x)] && stays(*formula(x), i) ? formula(x) : nullptr;
  }
  static Windows windows_of(const Formula& formula, const Shape& result) {
    Windows windows;
    if (formula.axis_from_end < 0) return windows;
    windows.axis_from_end = static_cast<int8_t>(formula.axis_from_end);
    windows.extent = result[result.rank() - 1 - formula.axis_from_end];
    for (size_t i = 0; i < formula.operands.size(); ++i) {
      if (!formula.operands[i].begin) continue;
      windows.operands = static_cast<uint8_t>(windows.operands | 1u << i);
      windows.begin[i] = *formula.operands[i].begin;
    }
    return windows;
  }
  // A formula without instructions is its operand times 1.
  static Expression expression_of(const Formula& formula, const Shape& result) {
    Expression expression{static_cast<uint8_t>(formula.operands.size()),
                          static_cast<uint8_t>(std::max<size_t>(1, formula.instructions.size()))};
    expression.instructions[0].alpha = 1;
    std::copy(formula.instructions.begin(), formula.instructions.end(), expression.instructions.begin());
    expression.windows = windows_of(formula, result);
    return expression;
  }
  // Returns true if a formula of one instruction reads what was broadcast.
  static bool is_other_than(const Node& node, const Formula& made_of) {
    return std::ranges::any_of(made_of.operands, [&](const Operand& x) {
      return std::ranges::find(node.inputs, x.value) == node.inputs.end();
    });
  }

  std::vector<std::optional<Formula>> formulas_;  // by value
  std::vector<bool> is_inlined_;                  // by value: readers take its formula if they can
  std::vector<bool> is_stored_;                   // by value: some reader takes it from memory
  std::vector<bool> is_needed_, is_gone_;         // by node
  std::vector<bool> is_read_backward_;            // by value: a node of the backward pass reads it
  std::vector<int> changed_at_;                   // by value: the first node that changes it
};

}  // namespace

void fuse_expressions(Graph& graph, std::span<const Value> keep) {
  Expressions(graph, keep).run(graph);
}

}  // namespace headroom
