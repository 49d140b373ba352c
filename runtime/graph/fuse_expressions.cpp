#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/graph/fuse_rules.h"
#include "runtime/graph/graph_view.h"

namespace headroom {
namespace {

// What a value is computed from: values in memory, and instructions whose last one gives it.
struct Formula {
  std::vector<int> operands;              // ids of values
  std::vector<Instruction> instructions;  // a and b count the operands first, as in an Expression
  std::vector<int> results;               // the value that each instruction computes

  bool is_short_enough() const {
    return operands.size() <= Expression::kMaxOperands && instructions.size() <= Expression::kMaxInstructions;
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
  // Returns the number of the value, as an instruction names it until number_operands().
  int operand(int value) { return find_or_add(formula_.operands, value); }
  int result(int value) const {
    const auto found = std::find(formula_.results.begin(), formula_.results.end(), value);
    return found == formula_.results.end()
               ? -1
               : kFirstResult + static_cast<int>(found - formula_.results.begin());
  }
  int append(Instruction step, int a, int b, int value) {
    steps_.push_back({step, a, b});
    formula_.instructions.push_back(step);
    formula_.results.push_back(value);
    return kFirstResult + static_cast<int>(formula_.results.size()) - 1;
  }
  // Appends what `value` is computed by, and returns its number.
  int inlined(const Formula& other) {
    std::vector<int> numbers;
    for (const int id : other.operands) numbers.push_back(operand(id));
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
  static int find_or_add(std::vector<int>& ids, int id) {
    const auto at = std::find(ids.begin(), ids.end(), id) - ids.begin();
    if (at == std::ssize(ids)) ids.push_back(id);
    return static_cast<int>(at);
  }

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
    return outputs.empty() || std::any_of(outputs.begin(), outputs.end(), [&](int y) {
             const auto next = readers(y);
             return kept(y) || (next.empty() && !is_backward(i)) ||
                    std::any_of(next.begin(), next.end(), [&](int reader) { return is_needed(reader); });
           });
  }
  // What nothing needs goes with what it reads.
  void drop_unneeded(Rewrite& nodes) {
    for (int i = 0; i < node_count(); ++i) {
      const std::vector<int>& inputs = graph().node(i).inputs;
      const auto is_gone = [&](int x) { return maker(x) >= 0 && is_gone_[static_cast<size_t>(maker(x))]; };
      if (is_needed(i) || std::none_of(inputs.begin(), inputs.end(), is_gone)) continue;
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
    std::optional<Formula> found = formula_of(i);
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
      numbers[k] =
          reads_formula(i, x, joined) ? joined.inlined(*formula(x)) : joined.operand(before_broadcast(i, x));
    }
    joined.append(*step, numbers[0], node.inputs.size() > 1 ? numbers[1] : 0, output(i));
    Formula found = joined.finish();
    if (!found.is_short_enough() || !spans_result(found, shape(output(i)))) return alone(i, *step);
    return found;
  }
  std::optional<Formula> alone(int i, const Instruction& step) const {
    FormulaBuilder joined;
    const Node& node = graph().node(i);
    const int a = joined.operand(node.inputs[0]), b = joined.operand(node.inputs.back());
    joined.append(step, a, b, output(i));
    return joined.finish();
  }

  // What a broadcast makes x of, if node i can read that: expressions broadcast their operands themselves.
  int before_broadcast(int i, int x) const {
    const int broadcast = maker(x);
    if (!op<BroadcastTo>(broadcast) || !on_one_device({broadcast, i})) return x;
    const int from = input(broadcast, 0);
    return is_float(from) && changed_at_[static_cast<size_t>(from)] > i ? from : x;
  }

  // Returns true if node i computes its operand x from what x is made of.
  bool reads_formula(int i, int x, const FormulaBuilder& joined) const {
    if (!is_inlined_[static_cast<size_t>(x)] || shape(x) != shape(output(i)) || !on_one_device({maker(x), i}))
      return false;
    FormulaBuilder longer = joined;
    longer.inlined(*formula(x));
    const Formula& both = longer.formula();
    const auto operands =
        static_cast<int>(both.operands.size()) + static_cast<int>(graph().node(i).inputs.size()) - 1;
    if (operands > Expression::kMaxOperands || both.instructions.size() >= Expression::kMaxInstructions)
      return false;
    return std::all_of(both.operands.begin(), both.operands.end(),
                       [&](int id) { return changed_at_[static_cast<size_t>(id)] > i; });
  }

  bool spans_result(const Formula& formula, const Shape& result) const {
    Shape spanned;
    for (const int id : formula.operands) {
      Shape next;
      if (!broadcast(spanned, shape(id), &next)) return false;
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
    const std::vector<int> sources = large_sources(*formula(y), y);
    size_t added = 0, reads = 0;
    for (const int reader : readers(y)) {
      if (!is_needed(reader)) continue;
      const Node& node = graph().node(reader);
      const bool is_elementwise =
          instruction_of(node.op) && node.outputs.size() == 1 && shape(node.outputs[0]) == shape(y);
      if ((!is_elementwise && !op<Reduce>(reader)) || !on_one_device({i, reader})) return false;
      added += added_by(node, y, sources);
      ++reads;
    }
    const size_t stored = 1 + sources.size() + reads;
    return reads > 0 && added < stored && !keeps_more_alive(i, sources);
  }

  std::vector<int> large_sources(const Formula& made_of, int y) const {
    std::vector<int> large;
    for (const int id : made_of.operands) {
      if (shape(id).elements() == shape(y).elements()) large.push_back(id);
    }
    return large;
  }

  // The sources of y that a reader of y does not read anyway.
  size_t added_by(const Node& reader, int y, const std::vector<int>& sources) const {
    return static_cast<size_t>(std::count_if(sources.begin(), sources.end(), [&](int source) {
      return std::none_of(reader.inputs.begin(), reader.inputs.end(), [&](int other) {
        if (other == y) return false;
        if (other == source) return true;
        const Formula* made_of = is_inlined_[static_cast<size_t>(other)] ? formula(other) : nullptr;
        return made_of && std::count(made_of->operands.begin(), made_of->operands.end(), source) > 0;
      });
    }));
  }

  // Returns true if the result waits for the backward pass, and its sources would not unless readers take
  // them instead: then no more than one of them may.
  bool keeps_more_alive(int i, const std::vector<int>& sources) const {
    if (is_backward(i) || !is_read_backward_[static_cast<size_t>(output(i))]) return false;
    return std::count_if(sources.begin(), sources.end(), [&](int source) {
             return maker(source) >= 0 && !is_read_backward_[static_cast<size_t>(source)];
           }) > 1;
  }

  // Readers come before what they read, so that is_stored_ is known.
  void rewrite(int i, Rewrite& nodes) {
    const Node& node = graph().node(i);
    if (const Formula* terms = op<Reduce>(i) ? terms_of(i) : nullptr) {
      for (const int x : terms->operands) is_stored_[static_cast<size_t>(x)] = true;
      nodes.put(i, Node{ReducedExpression{expression_of(*terms), *op<Reduce>(i)}, node.name, terms->operands,
                        node.outputs});
      return;
    }
    const Formula* made_of = node.outputs.size() == 1 ? formula(output(i)) : nullptr;
    const bool may_go = op<BroadcastTo>(i) || (made_of && is_inlined_[static_cast<size_t>(output(i))]);
    if (may_go && !kept(output(i)) && !is_stored_[static_cast<size_t>(output(i))] &&
        !readers(output(i)).empty())
      return drop(i, nodes);
    const bool is_joined = made_of && (made_of->instructions.size() > 1 || is_other_than(node, *made_of));
    for (const int x : is_joined ? made_of->operands : node.inputs) is_stored_[static_cast<size_t>(x)] = true;
    if (!is_joined) return;
    nodes.put(i, Node{expression_of(*made_of), node.name, made_of->operands, node.outputs});
  }
  // The formula that node i reduces; null if it reads a stored value.
  const Formula* terms_of(int i) const {
    const int x = input(i, 0);
    if (!is_inlined_[static_cast<size_t>(x)]) return nullptr;
    const auto stays = [&](int id) { return changed_at_[static_cast<size_t>(id)] > i; };
    const std::vector<int>& operands = formula(x)->operands;
    return std::all_of(operands.begin(), operands.end(), stays) ? formula(x) : nullptr;
  }
  static Expression expression_of(const Formula& formula) {
    Expression result{static_cast<uint8_t>(formula.operands.size()),
                      static_cast<uint8_t>(formula.instructions.size())};
    std::copy(formula.instructions.begin(), formula.instructions.end(), result.instructions.begin());
    return result;
  }
  // Returns true if a formula of one instruction reads what was broadcast.
  static bool is_other_than(const Node& node, const Formula& made_of) {
    return std::any_of(made_of.operands.begin(), made_of.operands.end(), [&](int x) {
      return std::find(node.inputs.begin(), node.inputs.end(), x) == node.inputs.end();
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
