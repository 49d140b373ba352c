// Recurrent layers, unrolled: each step of the sequence becomes a few nodes, and all steps share the weights.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/text.h"
#include "runtime/onnx/op_table.h"

namespace headroom::onnx {
namespace {

Item part(const NodeImport& n, const Item& x, int axis, int64_t begin, int64_t extent) {
  Slice slice{std::vector<int64_t>(static_cast<size_t>(x.rank()), 0), x.shape.with(axis, extent)};
  slice.begin[static_cast<size_t>(axis)] = begin;
  return n.im.slice(x, slice);
}

// What one direction of a layer is made of: extents as of a step, weights transposed.
struct Direction {
  const NodeImport& n;
  int64_t batch, hidden;
  Item recurrent_weights;               // (hidden, gates x hidden)
  std::optional<Item> recurrent_shift;  // (gates x hidden), where the cell adds it itself
  std::optional<Item> peepholes;        // (3 x hidden): of the input, output and forget gates

  Item sum(const Item& a, const Item& b) const { return n.im.binary(BinaryKind::kAdd, a, b); }
  Item product(const Item& a, const Item& b) const { return n.im.binary(BinaryKind::kMul, a, b); }
  Item sigmoid(const Item& x) const { return n.im.unary(UnaryKind::kSigmoid, x); }
  Item tanh(const Item& x) const { return n.im.unary(UnaryKind::kTanh, x); }
  // Gates [first, first + count) of (batch, gates x hidden) or of a shift.
  Item gates(const Item& x, int64_t first, int64_t count = 1) const {
    return part(n, x, x.rank() - 1, first * hidden, count * hidden);
  }
  Item recur(const Item& state) const { return n.im.matmul(state, recurrent_weights); }
};

using States = std::vector<Item>;
// The states after a step; `projected` (batch, gates x hidden) is the step's input times its weights,
// shifted.
using Cell = std::function<States(const Direction& d, const Item& projected, const States& before)>;

struct Layer {
  int64_t gates;
  size_t states;
  bool shifts_apart;  // the cell adds the shift of the recurrent product
  Cell cell;
};

// "Sigmoid,Tanh" for each direction; nothing for the default.
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
  const Item x = batch_first ? n.im.transpose(n.in(0), {1, 0, 2}) : n.in(0);
  const int64_t steps = x.shape[0], batch = x.shape[1], channels = x.shape[2];
  const std::string direction = n.text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    n.fail(fmt::format("has the direction {}", printable(direction)));
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  const int64_t hidden = n.integer("hidden_size", n.in(1).shape[1] / layer.gates);
  if (steps < 1 || hidden < 1) n.fail("takes a step at least, and a unit");
  if (n.has_attribute("clip")) n.fail("clips its sums");
  require_shape(n, 1, {directions, layer.gates * hidden, channels});
  require_shape(n, 2, {directions, layer.gates * hidden, hidden});
  if (n.has(3)) require_shape(n, 3, {directions, 2 * layer.gates * hidden});
  if (n.has(7)) require_shape(n, 7, {directions, 3 * hidden});
  if (n.has(4)) {
    const std::vector<int64_t> lengths = n.integers_in(4);
    if (std::any_of(lengths.begin(), lengths.end(), [&](int64_t length) { return length != steps; }))
      n.fail("has sequences of several lengths");
  }
  const Item rows = n.im.reshape(x, {steps * batch, channels});
  std::vector<Item> all_steps;             // by direction (T,1,N,H)
  std::vector<States> last(layer.states);  // by state and direction (1,N,H)
  for (int64_t d = 0; d < directions; ++d) {
    const auto weights = [&](size_t i) { return n.im.transpose(row_of(n, n.in(i), d), {1, 0}); };
    Direction of{n, batch, hidden, weights(2), {}, {}};
    if (n.has(7)) of.peepholes = row_of(n, n.in(7), d);
    Item projected = n.im.matmul(rows, weights(1));
    if (n.has(3)) {
      const Item shifts = row_of(n, n.in(3), d);
      Item shift = of.gates(shifts, 0, layer.gates);
      const Item recurrent = of.gates(shifts, layer.gates, layer.gates);
      if (layer.shifts_apart) {
        of.recurrent_shift = recurrent;
      } else {
        shift = of.sum(shift, recurrent);
      }
      projected = of.sum(projected, shift);
    }
    States states;
    for (size_t i = 0; i < layer.states; ++i) {
      if (n.has(5 + i)) {
        const Item given = batch_first ? n.im.transpose(n.in(5 + i), {1, 0, 2}) : n.in(5 + i);
        if (given.shape != Shape{directions, batch, hidden})
          n.fail(fmt::format("operand {} is {}", 5 + i, to_string(n.in(5 + i).shape)));
        states.push_back(row_of(n, given, d));
      } else {
        states.push_back(n.im.expand(n.im.number(0), {batch, hidden}));
      }
    }
    const bool is_reversed = direction == "reverse" || d == 1;
    std::vector<Item> outputs(static_cast<size_t>(steps));
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t step = is_reversed ? steps - 1 - i : i;
      states = layer.cell(of, part(n, projected, 0, step * batch, batch), states);
      outputs[static_cast<size_t>(step)] = n.im.reshape(states[0], {1, batch, hidden});
    }
    all_steps.push_back(n.im.reshape(n.im.concat(outputs, 0), {steps, 1, batch, hidden}));
    for (size_t i = 0; i < layer.states; ++i) last[i].push_back(n.im.reshape(states[i], {1, batch, hidden}));
  }
  const Item sequence = n.im.concat(all_steps, 1);
  n.out(batch_first ? n.im.transpose(sequence, {2, 0, 1, 3}) : sequence);
  for (const States& state : last) {
    const Item both = n.im.concat(state, 0);
    n.out(batch_first ? n.im.transpose(both, {1, 0, 2}) : both);
  }
}

States lstm_step(const Direction& d, const Item& projected, const States& before) {
  const Item gates = d.sum(projected, d.recur(before[0]));
  const auto gate = [&](int64_t which, const Item& cell) {
    const Item x = d.gates(gates, which);
    return d.sigmoid(d.peepholes ? d.sum(x, d.product(d.gates(*d.peepholes, which), cell)) : x);
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
  if (d.recurrent_shift) recurrent = d.sum(recurrent, *d.recurrent_shift);
  const Item both = d.sigmoid(d.sum(d.gates(projected, 0, 2), d.gates(recurrent, 0, 2)));
  const Item update = d.gates(both, 0), reset = d.gates(both, 1);
  const Item candidate = d.tanh(d.sum(d.gates(projected, 2), d.product(reset, d.gates(recurrent, 2))));
  return mixed(d, update, candidate, before[0]);
}

// The reset gate weighs the state before its product.
States gru_step_reset_before(const Direction& d, const Item& projected, const States& before) {
  const auto recur = [&](const Item& state, int64_t first, int64_t count) {
    return d.n.im.matmul(state, d.gates(d.recurrent_weights, first, count));
  };
  const Item both = d.sigmoid(d.sum(d.gates(projected, 0, 2), recur(before[0], 0, 2)));
  const Item update = d.gates(both, 0), reset = d.gates(both, 1);
  const Item candidate = d.tanh(d.sum(d.gates(projected, 2), recur(d.product(reset, before[0]), 2, 1)));
  return mixed(d, update, candidate, before[0]);
}

}  // namespace

void import_lstm(NodeImport& n) {
  require_activations(n, {"Sigmoid", "Tanh", "Tanh"});
  if (n.integer("input_forget", 0) != 0) n.fail("couples its gates (input_forget)");
  import_layer(n, {4, 2, false, lstm_step});
}

void import_gru(NodeImport& n) {
  require_activations(n, {"Sigmoid", "Tanh"});
  const bool is_reset_after = n.integer("linear_before_reset", 0) != 0;
  import_layer(n, {3, 1, is_reset_after, is_reset_after ? gru_step_reset_after : gru_step_reset_before});
}

void import_rnn(NodeImport& n) {
  const Attribute* const given = n.node.find("activations");
  const bool is_relu = given != nullptr && !given->texts.empty() && given->texts[0] == "Relu";
  require_activations(n, {is_relu ? "Relu" : "Tanh"});
  const UnaryKind kind = is_relu ? UnaryKind::kRelu : UnaryKind::kTanh;
  import_layer(n, {1, 1, false, [kind](const Direction& d, const Item& projected, const States& before) {
                     return States{d.n.im.unary(kind, d.sum(projected, d.recur(before[0])))};
                   }});
}

}  // namespace headroom::onnx
