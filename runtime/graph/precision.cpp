#include "runtime/graph/precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/half.h"
#include "runtime/graph/update_gradients.h"

namespace headroom {
namespace {

bool is_movement(const Op& op) {
  return std::holds_alternative<Reshape>(op) || std::holds_alternative<CopyToDevice>(op) ||
         std::holds_alternative<Transpose>(op) || std::holds_alternative<Slice>(op) ||
         std::holds_alternative<SliceGrad>(op) || std::holds_alternative<Concat>(op);
}

// Ops whose results need the range or the precision of f32.
bool gives_f32(const Op& op, bool is_of_one_value);

bool gives_f32(const Expression& op) {
  const Instruction& last = op.steps().back();
  return visit_op(last, [&](const auto& step) { return gives_f32(Op(step), last.a == last.b); });
}
bool gives_f32(const Op& op, bool is_of_one_value) {
  return std::visit(Overloaded{
                        [](const Reduce&) { return true; },
                        [](const ReducedExpression&) { return true; },
                        [](const CumulativeSum&) { return true; },
                        [](const RandomUniform&) { return true; },  // rounded, it would reach 1
                        [](const CrossEntropy&) { return true; },
                        [](const Accuracy&) { return true; },
                        [](const Expression& expression) { return gives_f32(expression); },
                        [](const Unary& unary) {
                          return unary.kind == UnaryKind::kExp || unary.kind == UnaryKind::kLog ||
                                 unary.kind == UnaryKind::kSqrt || unary.kind == UnaryKind::kReciprocal ||
                                 unary.kind == UnaryKind::kPower || unary.kind == UnaryKind::kSoftplus;
                        },
                        [&](const Binary& binary) {  // also a square
                          return binary.kind == BinaryKind::kPow ||
                                 (binary.kind == BinaryKind::kMul && is_of_one_value);
                        },
                        [](const auto&) { return false; },
                    },
                    op);
}
bool gives_f32(const Node& node) {
  return gives_f32(node.op, node.inputs.size() == 2 && node.inputs[0] == node.inputs[1]);
}

// Results of one row of numbers for many: sums over the batch, which stay f32.
bool is_statistic(const Op& op, size_t output) {
  if (std::holds_alternative<Attention>(op)) return output == 1;
  if (std::holds_alternative<BatchNormStatistics>(op)) return true;
  if (std::holds_alternative<BranchGrad>(op)) return output == 1;
  const bool is_norm = std::holds_alternative<BatchNorm>(op) || std::holds_alternative<BatchNormGrad>(op) ||
                       std::holds_alternative<LayerNorm>(op) || std::holds_alternative<LayerNormGrad>(op);
  return is_norm && (output == 1 || output == 2);
}

// Returns the number of leading operands that are factors of products.
size_t factor_count(const Node& node) {
  if (const auto* attention = std::get_if<Attention>(&node.op)) return attention->packed ? 1 : 3;
  if (const auto* gradient = std::get_if<AttentionGrad>(&node.op)) return gradient->packed ? 3 : 5;
  if (std::holds_alternative<CachedAttention>(node.op)) return CachedAttention::kIndices;
  return library_of(node.op) == Library::kNone ? 0 : node.inputs.size();
}

// Casts of weights are joined to one node as long as it makes no more than this. Each launch takes some
// microseconds, more than the bytes of most weights, and a node's results are all there at once.
constexpr int64_t kJoinedCastBytes = 16 * kMiB;

// An initializer's f32, rounded.
Initializer rounded(const Initializer& initializer, const std::string& name, const TensorSpec& spec,
                    DType half) {
  return given([=] {
    std::vector<std::byte> made;
    const std::span<const std::byte> whole = initial_bytes(initializer, name, spec, made);
    std::vector<std::byte> stored(whole.size() / 2);
    for (size_t i = 0; i < stored.size() / 2; ++i) {
      float value = 0;
      std::memcpy(&value, &whole[4 * i], sizeof value);
      const uint16_t bits = half == DType::kBf16 ? bf16_of(value) : f16_of(value);
      std::memcpy(&stored[2 * i], &bits, sizeof bits);
    }
    return stored;
  });
}

// Updates read f32, except for gradients; custom ops what their descriptions take.
bool keeps_types(const Op& op) {
  return is_update(op) || std::holds_alternative<Custom>(op);
}

// A slice along one axis as an expression, which may widen its numbers on the way.
std::optional<Expression> widening(const Op& op, const Shape& from, const Shape& to) {
  const auto* slice = std::get_if<Slice>(&op);
  if (!slice) return {};
  const std::optional<int> axis = sliced_axis(from, to, slice->steps);
  if (!axis) return {};
  Expression widened{1, 1};
  widened.instructions[0].alpha = 1;
  const int64_t begin = slice->begin[static_cast<size_t>(*axis)];
  widened.windows = {static_cast<int8_t>(from.rank() - 1 - *axis), 1, to[*axis], {-begin}};
  return widened;
}

class HalfStorage {
 public:
  HalfStorage(Graph& graph, DType half, std::span<const Value> keep)
      : graph_(graph),
        half_(half),
        kept_(graph.values().size()),
        is_read_(graph.values().size()),
        is_cache_(find_caches(graph)),
        twins_(graph.values().size(), -1) {
    for (const Value& value : keep) kept_[static_cast<size_t>(value.id)] = true;
    for (const Node& node : graph.nodes()) {
      for (const int input : node.inputs) is_read_[static_cast<size_t>(input)] = true;
      if (!keeps_types(node.op)) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (!is_gradient_operand(node.op, i) && !is_of_cache(node, i))
          kept_[static_cast<size_t>(node.inputs[i])] = true;
      }
    }
    store_constants();
  }

  void run() {
    for (const Node& node : graph_.nodes()) add(node);
    graph_.replace_nodes(std::move(nodes_));
  }

 private:
  const TensorSpec& spec(int value) const { return graph_.value(value).spec; }
  int& twin(int value) { return twins_[static_cast<size_t>(value)]; }
  int twin(int value) const { return twins_[static_cast<size_t>(value)]; }

  // Returns, by value, true for variables whose rows updates replace, and that products alone read.
  static std::vector<bool> find_caches(const Graph& graph) {
    constexpr unsigned kTable = 1, kFactor = 2, kOther = 4;
    std::vector<unsigned> uses(graph.values().size());
    for (const Node& node : graph.nodes()) {
      const bool replaces = std::holds_alternative<RowUpdate>(node.op);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const TensorSpec& spec = graph.value(node.inputs[i]).spec;
        const bool is_matrix = spec.dtype == DType::kF32 && spec.shape.rank() >= 2;
        uses[static_cast<size_t>(node.inputs[i])] |= !is_matrix                            ? kOther
                                                     : replaces && i % 2 == 1              ? kTable
                                                     : !replaces && i < factor_count(node) ? kFactor
                                                                                           : kOther;
      }
    }
    std::vector<bool> is_cache;
    for (const unsigned use : uses) is_cache.push_back(use == (kTable | kFactor));
    return is_cache;
  }
  // Returns true for a cache, and for its new rows, among the operands of an update.
  bool is_of_cache(const Node& node, size_t i) const {
    return std::holds_alternative<RowUpdate>(node.op) && i > 0 &&
           is_cache_[static_cast<size_t>(node.inputs[i - (i + 1) % 2])];
  }

  // Returns true if a node wants an operand in f32 cast, regardless of its other operands.
  bool is_cast(const Node& node, size_t i, size_t factors) const {
    const int input = node.inputs[i];
    if (is_update(node.op)) return is_of_cache(node, i);
    if (std::holds_alternative<Dense>(node.op) && i == 2) return true;  // the bias has the result's type
    const bool is_weight = graph_.value(input).kind == ValueKind::kVariable;
    return spec(input).shape.rank() >= 2 && (i < factors || (is_weight && is_movement(node.op)));
  }

  // Stores in 16 bits the variables that every reader wants in 16 bits: constants, and caches of such values.
  void store_constants() {
    std::vector<bool> is_read(graph_.values().size()), stays(graph_.values().size());
    for (const Node& node : graph_.nodes()) {
      const size_t factors = factor_count(node);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const auto input = static_cast<size_t>(node.inputs[i]);
        const bool is_table = std::holds_alternative<Gather>(node.op) && i == 0;
        is_read[input] = true;
        if (!is_cast(node, i, factors) && !(is_table && is_rounded_by(node))) stays[input] = true;
      }
    }
    for (const int variable : graph_.variables()) {
      const auto at = static_cast<size_t>(variable);
      if (!is_read[at] || stays[at] || kept_[at] || spec(variable).dtype != DType::kF32) continue;
      const ValueInfo& info = graph_.value(variable);
      graph_.set_initializer(variable, rounded(info.initializer, info.name, info.spec, half_));
      graph_.set_dtype(variable, half_);
    }
  }

  // Returns true if the node reads rows of a table of weights, which are rounded.
  bool is_rounded_by(const Node& node) const {
    return std::holds_alternative<Gather>(node.op) && spec(node.outputs[0]).shape.rank() >= 2 &&
           graph_.value(node.inputs[0]).kind == ValueKind::kVariable;
  }

  void add(Node node) {
    const bool keeps = keeps_types(node.op);
    const size_t factors = factor_count(node);
    const bool is_product = factors > 0;
    // Tensors side by side are of one type.
    const bool joins_half =
        std::holds_alternative<Concat>(node.op) && std::ranges::any_of(node.inputs, [&](int input) {
          return twin(input) >= 0 || is_half(spec(input).dtype);
        });
    bool any_half = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      int& input = node.inputs[i];
      if (keeps && !is_gradient_operand(node.op, i) && !is_of_cache(node, i)) continue;
      if (spec(input).dtype == DType::kF32 && (joins_half || is_cast(node, i, factors))) cast(input, node);
      if (twin(input) >= 0) input = twin(input);
      any_half = any_half || is_half(spec(input).dtype);
    }
    std::vector<Node> casts_back;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      int& output = node.outputs[i];
      if (!is_stored_half(node, i, any_half, is_product)) continue;
      if (kept_[static_cast<size_t>(output)] && !is_read_[static_cast<size_t>(output)]) {
        // Only the caller reads it, who gets f32.
        if (const auto widened = widening(node.op, spec(node.inputs[0]).shape, spec(output).shape)) {
          node.op = *widened;
          continue;
        }
      }
      if (!kept_[static_cast<size_t>(output)]) {
        graph_.set_dtype(output, half_);
        continue;
      }
      const int whole = output;
      output = twin(whole) = new_half(whole);
      casts_back.push_back(
          Node{Cast{DType::kF32}, graph_.value(output).name + "/f32", {output}, {whole}, node.device});
    }
    nodes_.push_back(std::move(node));
    for (Node& cast_back : casts_back) nodes_.push_back(std::move(cast_back));
  }

  bool is_stored_half(const Node& node, size_t i, bool any_half, bool is_product) const {
    const TensorSpec& result = spec(node.outputs[i]);
    if (result.dtype != DType::kF32) return false;
    if (is_movement(node.op)) return any_half;  // the bytes as they are
    if (result.shape.rank() == 0 || gives_f32(node) || is_statistic(node.op, i)) return false;
    if (is_product) return result.shape.rank() >= 2 || std::holds_alternative<DenseFilterGrad>(node.op);
    return any_half || is_rounded_by(node);
  }

  int new_half(int value) {
    ValueInfo info = graph_.value(value);
    info.name += "/" + std::string(to_string(half_));
    info.spec.dtype = half_;
    info.initializer = {};
    return graph_.new_result(std::move(info)).id;
  }

  // The value in 16 bits, before its first reader.
  void cast(int value, const Node& reader) {
    if (twin(value) >= 0) return;
    const int made = new_half(value);
    twin(value) = made;
    if (graph_.value(value).kind == ValueKind::kVariable) {
      JoinedCast& joined = joined_casts_[reader.device];
      const int64_t bytes = joined.bytes + spec(made).bytes();
      if (joined.bytes > 0 && bytes <= kJoinedCastBytes) {
        nodes_[joined.node].inputs.push_back(value);
        nodes_[joined.node].outputs.push_back(made);
        joined.bytes = bytes;
        return;
      }
      joined = {nodes_.size(), spec(made).bytes()};
    }
    nodes_.push_back(Node{Cast{half_}, graph_.value(made).name, {value}, {made}, reader.device});
  }

  // A cast of weights that may take another one, by its place in nodes_.
  struct JoinedCast {
    size_t node = 0;
    int64_t bytes = 0;  // bytes of its results
  };

  Graph& graph_;
  const DType half_;
  std::vector<bool> kept_;
  std::vector<bool> is_read_;                       // by a node, before this pass
  const std::vector<bool> is_cache_;                // by value
  std::map<std::string, JoinedCast> joined_casts_;  // by device
  std::vector<int> twins_;  // by value: the same in 16 bits, if its reader takes that; -1: none
  std::vector<Node> nodes_;
};

}  // namespace

void store_in(Graph& graph, Precision precision, std::span<const Value> keep) {
  if (precision == Precision::kF32) return;
  HalfStorage(graph, precision == Precision::kBf16 ? DType::kBf16 : DType::kF16, keep).run();
}

}  // namespace headroom
