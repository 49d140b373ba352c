// Recurrent layers, unrolled: each step of the sequence becomes a few nodes, and all steps share the weights.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "runtime/onnx/op_table.h"

namespace headroom::onnx {
namespace {

// Maximum over all directions. Each step adds some ten nodes, so this is a graph of 100,000.
constexpr int64_t kMaxUnrolledSteps = 10'000;

// With so few steps, turning the recurrent weights costs more than it saves.
constexpr int64_t kFewSteps = 2;

Item part(const NodeImport& n, const Item& x, int axis, int64_t begin, int64_t extent) {
  Slice slice{std::vector<int64_t>(static_cast<size_t>(x.rank()), 0), x.shape.with(axis, extent)};
  slice.begin[static_cast<size_t>(axis)] = begin;
  return n.im.slice(x, slice);
}

// One direction of a layer; the weights are sliced once, so that all steps read the same values.
struct Direction {
  const NodeImport& n;
  int64_t hidden;
  std::vector<Item> recurrent_weights;  // (hidden, gates x hidden), of each product that a step takes
  std::vector<Item> recurrent_bias;     // (gates x hidden), where the cell adds it itself
  std::vector<Item> peepholes;          // (hidden), of the input, output and forget gates

  Item sum(const Item& a, const Item& b) const { return n.im.binary(BinaryKind::kAdd, a, b); }
  Item product(const Item& a, const Item& b) const { return n.im.binary(BinaryKind::kMul, a, b); }
  Item sigmoid(const Item& x) const { return n.im.unary(UnaryKind::kSigmoid, x); }
  Item tanh(const Item& x) const { return n.im.unary(UnaryKind::kTanh, x); }
  // Gates [first, first + count) of the last axis.
  Item gates(const Item& x, int64_t first, int64_t count = 1) const {
    return part(n, x, x.rank() - 1, first * hidden, count * hidden);
  }
  Item recur(const Item& state, size_t i = 0) const { return n.im.matmul(state, recurrent_weights[i]); }
};

using States = std::vector<Item>;
// The states after a step, from `projected` (batch, gates x hidden), its input times the weights plus the
// bias.
using Cell = std::function<States(const Direction& d, const Item& projected, const States& before)>;

struct Layer {
  std::vector<int64_t> products;  // the gates of each recurrent product of a step
  size_t states;
  bool adds_recurrent_bias;  // the cell does
  Cell cell;
};

// Checks a list of names, repeated for each direction; by default the known ones.
void require_activations(const NodeImport& n, const std::vector<std::string>& known) {
  const Attribute* const given = n.node.find("activations");
  if (given == nullptr) return;
  for (size_t i = 0; i < given->texts.size(); ++i) {
    if (given->texts[i] != known[i % known.size()]) {
      n.fail(fmt::format("has the activation {}; only {} is supported there", printable(given->texts[i]),
                         known[i % known.size()]));
    }
  }
}

// One row of a tensor with a direction in each row of its first axis, without that axis.
Item row_of(const NodeImport& n, const Item& x, int64_t direction) {
  const std::vector<int64_t> extents(x.shape.begin() + 1, x.shape.end());
  return n.im.reshape(part(n, x, 0, direction, 1), Shape(std::span<const int64_t>(extents)));
}

void require_shape(const NodeImport& n, size_t i, const Shape& shape) {
  if (n.in(i).shape != shape)
    n.fail(fmt::format("operand {} is {} instead of {}", i, to_string(n.in(i).shape), to_string(shape)));
}

void import_layer(NodeImport& n, const Layer& layer) {
  const bool batch_first = n.integer("layout", 0) != 0;
  if (n.in(0).rank() != 3 || n.in(1).rank() != 3) n.fail("takes sequences (T,N,C) and weights of rank 3");
  int64_t gates = 0;
  for (const int64_t count : layer.products) gates += count;
  const Item x = batch_first ? n.im.transpose(n.in(0), {1, 0, 2}) : n.in(0);
  const int64_t steps = x.shape[0], batch = x.shape[1], channels = x.shape[2];
  const std::string direction = n.text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    n.fail(fmt::format("has the direction {}", printable(direction)));
  const int64_t directions = direction == "bidirectional" ? 2 : 1, hidden = n.in(1).shape[1] / gates;
  if (steps < 1 || hidden < 1) n.fail("takes sequences of one step at least, and one unit at least");
  if (n.integer("hidden_size", hidden) != hidden)
    n.fail(fmt::format("has hidden_size {} and weights of {}", n.integer("hidden_size", hidden), hidden));
  if (steps > kMaxUnrolledSteps / directions) {
    n.fail(
        fmt::format("has sequences of {} steps; {} can be unrolled", steps, kMaxUnrolledSteps / directions));
  }
  if (n.has_attribute("clip")) n.fail("clips its sums");
  require_shape(n, 1, {directions, gates * hidden, channels});
  require_shape(n, 2, {directions, gates * hidden, hidden});
  if (n.has(3)) require_shape(n, 3, {directions, 2 * gates * hidden});
  std::optional<Item> lengths;  // (N,1), unless all sequences are as long as x
  if (n.has(4)) {
    require_shape(n, 4, {batch});
    const auto is_whole = [&](int64_t length) { return length == steps; };
    if (!n.in(4).constant || !std::ranges::all_of(n.integers_in(4), is_whole))
      lengths = n.im.reshape(n.in(4), {batch, 1});
  }
  for (size_t i = 5; i < 5 + layer.states; ++i) {
    if (!n.has(i)) continue;
    require_shape(n, i, batch_first ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden});
  }
  if (n.has(7)) require_shape(n, 7, {directions, 3 * hidden});
  const Item rows = n.im.reshape(x, {steps * batch, channels});
  std::vector<Item> sequences;             // by direction (T,1,N,H)
  std::vector<States> last(layer.states);  // by state and direction (1,N,H)
  for (int64_t d = 0; d < directions; ++d) {
    const auto weights = [&](size_t i) { return n.im.transpose(row_of(n, n.in(i), d), {1, 0}); };
    Direction of{n, hidden, {}, {}, {}};
    Item recurrent = weights(2);
    // Turned once, as a product of few rows by turned weights takes longer than one by weights as they lie.
    if (steps > kFewSteps) recurrent = n.im.item_of(n.im.plain(recurrent), recurrent.type, in_order(2));
    int64_t first = 0;
    for (const int64_t count : layer.products) {
      of.recurrent_weights.push_back(count == gates ? recurrent : of.gates(recurrent, first, count));
      first += count;
    }
    Item projected = n.im.matmul(rows, weights(1));
    if (n.has(3)) {
      const Item both = row_of(n, n.in(3), d);
      Item bias = of.gates(both, 0, gates);
      const Item recurrent_bias = of.gates(both, gates, gates);
      if (layer.adds_recurrent_bias) {
        of.recurrent_bias.push_back(recurrent_bias);
      } else {
        bias = of.sum(bias, recurrent_bias);
      }
      projected = of.sum(projected, bias);
    }
    for (int64_t gate = 0; n.has(7) && gate < 3; ++gate)
      of.peepholes.push_back(of.gates(row_of(n, n.in(7), d), gate));
    States states;
    for (size_t i = 5; i < 5 + layer.states; ++i) {
      if (n.has(i)) {
        states.push_back(row_of(n, batch_first ? n.im.transpose(n.in(i), {1, 0, 2}) : n.in(i), d));
      } else {
        states.push_back(n.im.expand(n.im.number(0), {batch, hidden}));
      }
    }
    const bool is_reversed = direction == "reverse" || d == 1;
    std::vector<Item> outputs(static_cast<size_t>(steps));
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t step = is_reversed ? steps - 1 - i : i;
      States next = layer.cell(of, part(n, projected, 0, step * batch, batch), states);
      Item output = next[0];
      if (lengths) {  // beyond its end a sequence keeps its states, and its outputs are 0
        const Item goes_on = n.im.compare(CompareKind::kLess, n.im.whole(step), *lengths);
        output = n.im.where(goes_on, output, n.im.number(0));
        for (size_t k = 0; k < next.size(); ++k) next[k] = n.im.where(goes_on, next[k], states[k]);
      }
      states = std::move(next);
      outputs[static_cast<size_t>(step)] = n.im.reshape(output, {1, batch, hidden});
    }
    sequences.push_back(n.im.reshape(n.im.concat(outputs, 0), {steps, 1, batch, hidden}));
    for (size_t i = 0; i < layer.states; ++i) last[i].push_back(n.im.reshape(states[i], {1, batch, hidden}));
  }
  const Item sequence = n.im.concat(sequences, 1);
  n.out(batch_first ? n.im.transpose(sequence, {2, 0, 1, 3}) : sequence);
  for (const States& state : last) {
    const Item all = n.im.concat(state, 0);
    n.out(batch_first ? n.im.transpose(all, {1, 0, 2}) : all);
  }
}

States lstm_step(const Direction& d, const Item& projected, const States& before) {
  const Item gates = d.sum(projected, d.recur(before[0]));
  const auto gate = [&](size_t which, const Item& cell) {
    const Item x = d.gates(gates, static_cast<int64_t>(which));
    return d.sigmoid(d.peepholes.empty() ? x : d.sum(x, d.product(d.peepholes[which], cell)));
  };
  const Item candidate = d.tanh(d.gates(gates, 3));
  const Item cell = d.sum(d.product(gate(2, before[1]), before[1]), d.product(gate(0, before[1]), candidate));
  return {d.product(gate(1, cell), d.tanh(cell)), cell};
}

// (1 - update) candidate + update before
States mixed(const Direction& d, const Item& update, const Item& candidate, const Item& before) {
  return {d.sum(candidate, d.product(update, d.n.im.binary(BinaryKind::kSub, before, candidate)))};
}

// The reset gate weighs the recurrent product, as in PyTorch and cuDNN.
States gru_step_reset_after(const Direction& d, const Item& projected, const States& before) {
  Item recurrent = d.recur(before[0]);
  if (!d.recurrent_bias.empty()) recurrent = d.sum(recurrent, d.recurrent_bias[0]);
  const Item both = d.sigmoid(d.sum(d.gates(projected, 0, 2), d.gates(recurrent, 0, 2)));
  const Item update = d.gates(both, 0), reset = d.gates(both, 1);
  const Item candidate = d.tanh(d.sum(d.gates(projected, 2), d.product(reset, d.gates(recurrent, 2))));
  return mixed(d, update, candidate, before[0]);
}

// The reset gate weighs the state before its product.
States gru_step_reset_before(const Direction& d, const Item& projected, const States& before) {
  const Item both = d.sigmoid(d.sum(d.gates(projected, 0, 2), d.recur(before[0])));
  const Item update = d.gates(both, 0), reset = d.gates(both, 1);
  const Item candidate = d.tanh(d.sum(d.gates(projected, 2), d.recur(d.product(reset, before[0]), 1)));
  return mixed(d, update, candidate, before[0]);
}

}  // namespace

void import_lstm(NodeImport& n) {
  require_activations(n, {"Sigmoid", "Tanh", "Tanh"});
  if (n.integer("input_forget", 0) != 0) n.fail("couples its gates (input_forget)");
  import_layer(n, {{4}, 2, false, lstm_step});
}

void import_gru(NodeImport& n) {
  require_activations(n, {"Sigmoid", "Tanh"});
  if (n.integer("linear_before_reset", 0) != 0) {
    import_layer(n, {{3}, 1, true, gru_step_reset_after});
  } else {
    import_layer(n, {{2, 1}, 1, false, gru_step_reset_before});
  }
}

void import_rnn(NodeImport& n) {
  const Attribute* const given = n.node.find("activations");
  const bool is_relu = given != nullptr && !given->texts.empty() && given->texts[0] == "Relu";
  require_activations(n, {is_relu ? "Relu" : "Tanh"});
  const UnaryKind kind = is_relu ? UnaryKind::kRelu : UnaryKind::kTanh;
  import_layer(n, {{1}, 1, false, [kind](const Direction& d, const Item& projected, const States& before) {
                     return States{d.n.im.unary(kind, d.sum(projected, d.recur(before[0])))};
                   }});
}

}  // namespace headroom::onnx
