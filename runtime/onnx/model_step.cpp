#include "runtime/onnx/model_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/text.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/fuse.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/graph_view.h"
#include "runtime/graph/optimizer.h"

namespace headroom::onnx {
namespace {

Shape without_axis(const Shape& shape, int axis) {
  std::vector<int64_t> extents(shape.begin(), shape.end());
  extents.erase(extents.begin() + axis);
  return Shape(std::span<const int64_t>(extents));
}

// Labels that data gives with an axis of extent 1 too many, or flat, mean the same.
bool means(const Shape& given, const Shape& labels) {
  const auto without_ones = [](const Shape& shape) {
    std::vector<int64_t> extents;
    for (int64_t extent : shape) {
      if (extent != 1) extents.push_back(extent);
    }
    return extents;
  };
  return without_ones(given) == without_ones(labels);
}

int class_axis(const Shape& output, const std::optional<Shape>& labels) {
  const int last = output.rank() - 1;
  if (last < 1) return last;
  if (!labels) return output.rank() > 3 ? 1 : last;
  if (means(*labels, without_axis(output, 1))) return 1;
  if (means(*labels, without_axis(output, last))) return last;
  throw InvalidArgument(
      fmt::format("labels {} do not fit the output {}: there is one for each position without the "
                  "axis of the classes, which is 1 or the last one",
                  to_string(*labels), to_string(output)));
}

// Products of odd shapes are slow on a GPU: their rows start at any address. This many columns start at
// multiples of 16 bytes in every type.
constexpr int64_t kColumnsOfALine = 8;
// With fewer classes the padding costs more than it saves, but where logits are many, as those of every
// pixel.
constexpr int64_t kLeastPaddedClasses = 1024;
constexpr int64_t kLeastPaddedLogits = 1 << 20;

// A variable with zeros after the elements of another one along an axis, the same for all who ask for it.
Value padded_variable(Value narrow, int axis, int64_t extent) {
  Graph& graph = *narrow.graph;
  const ValueInfo& info = graph.value(narrow.id);
  const Shape shape = info.spec.shape, wide_shape = shape.with(axis, extent);
  const std::string name = fmt::format("{}/padded{}", info.name, to_string(wide_shape));
  for (const int variable : graph.variables()) {
    if (graph.value(variable).name == name) return {&graph, variable};
  }
  int64_t row = element_bytes(info.spec.dtype);  // with all that lies after the axis
  for (int i = axis; i < shape.rank(); ++i) row *= shape[i];
  const auto bytes = [initializer = info.initializer, narrow_name = info.name, spec = info.spec, row,
                      wide = row / shape[axis] * extent] {
    std::vector<std::byte> made;
    const std::span<const std::byte> all = initial_bytes(initializer, narrow_name, spec, made);
    const size_t rows = row == 0 ? 0 : all.size() / static_cast<size_t>(row);
    std::vector<std::byte> padded(rows * static_cast<size_t>(wide));
    for (size_t i = 0; i < rows; ++i)
      std::memcpy(&padded[i * static_cast<size_t>(wide)], &all[i * static_cast<size_t>(row)],
                  static_cast<size_t>(row));
    return padded;
  };
  return graph.variable(name, {info.spec.dtype, wide_shape}, given(bytes));
}

bool is_changed(const Graph& graph, int variable) {
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) {
    return std::ranges::any_of(mutated_inputs(node.op, node.inputs.size()), [&](int input) {
      return node.inputs[static_cast<size_t>(input)] == variable;
    });
  });
}

// Returns `value` padded with zeros after its last axis to `columns`, if it is a product or a convolution
// (and a bias) that can be made that wide; otherwise nullopt. Weights that nothing trains are padded once.
std::optional<Value> widened_product(const GraphView& view, Value value, int64_t columns, bool is_trained) {
  Graph& graph = *value.graph;
  const Shape shape = value.shape();
  const Shape wide = shape.with(shape.rank() - 1, columns);
  const auto padded = [&](Value narrow, int axis) {
    if (!is_trained && graph.value(narrow.id).kind == ValueKind::kVariable && !is_changed(graph, narrow.id))
      return padded_variable(narrow, axis, columns);
    const std::vector<int64_t> begin(static_cast<size_t>(narrow.shape().rank()), 0);
    return graph.add(SliceGrad{begin, narrow.shape().with(axis, columns)}, std::vector<Value>{narrow})[0];
  };
  const int node = view.maker(value.id);
  const auto operand = [&](size_t i) { return Value{&graph, view.input(node, i)}; };
  if (view.op<Reshape>(node) && operand(0).shape().last() == shape.last() && operand(0).shape().rank() > 0) {
    const std::optional<Value> inner = widened_product(view, operand(0), columns, is_trained);
    return inner ? std::optional(reshape(*inner, wide)) : std::nullopt;
  }
  if (const auto* binary = view.op<Binary>(node); binary && binary->kind == BinaryKind::kAdd) {
    for (size_t i = 0; i < 2; ++i) {
      const Value bias = operand(i), product = operand(1 - i);
      if (bias.shape() != Shape{shape.last()} || product.shape() != shape) continue;
      const std::optional<Value> inner = widened_product(view, product, columns, is_trained);
      return inner ? std::optional(add(*inner, padded(bias, 0))) : std::nullopt;
    }
    return {};
  }
  if (const auto* conv = view.op<Conv2d>(node); conv && conv->groups == 1)
    return conv2d(operand(0), padded(operand(1), conv->filter_by_result ? 0 : 3), *conv);
  const auto* product = view.op<MatMul>(node);
  if (!product || operand(1).shape().rank() != 2) return {};
  return matmul(operand(0), padded(operand(1), product->transpose_b ? 0 : 1), *product);
}

// Logits, or other outputs of a product, with as many columns as a product computes fast.
Value padded_logits(Value logits, int64_t classes, bool is_trained) {
  const int64_t columns = round_up(classes, kColumnsOfALine);
  const bool are_many = logits.shape().elements() >= kLeastPaddedLogits && 4 * (columns - classes) <= classes;
  if (columns == classes || (classes < kLeastPaddedClasses && !are_many)) return logits;
  const std::optional<Value> wide =
      widened_product(GraphView(*logits.graph, {}), logits, columns, is_trained);
  return wide ? *wide : logits;
}

void add_loss(ModelStep& step, const ModelStepSettings& settings) {
  const size_t position = step.model.find_output(settings.output);
  const Item& output = step.model.outputs[position];
  const std::string& name = step.model.output_names[position];
  if (!output.is_runtime() || output.dtype() != DType::kF32) {
    throw InvalidArgument(
        fmt::format("output '{}' does not depend on the inputs, or holds integers", printable(name)));
  }
  if (settings.loss == LossKind::kMse) {
    if (settings.label_shape && *settings.label_shape != output.shape) {
      throw InvalidArgument(fmt::format("labels {} do not have the shape {} of the output",
                                        to_string(*settings.label_shape), to_string(output.shape)));
    }
    step.labels = step.graph.input("train/labels", {DType::kF32, output.shape});
    const Value difference = sub(step.model.output_in(position, in_order(output.rank())), step.labels);
    step.loss = mean(mul(difference, difference));
    return;
  }
  if (output.rank() < 1) throw InvalidArgument(fmt::format("output '{}' has no classes", printable(name)));
  const int axis = class_axis(output.shape, settings.label_shape);
  Axes order;
  for (int other = 0; other < output.rank(); ++other) {
    if (other != axis) order.push_back(other);
  }
  order.push_back(axis);
  step.classes = output.shape[axis];
  const Shape labels = without_axis(output.shape, axis);
  step.labels = step.graph.input("train/labels", {DType::kI32, labels});
  const Value logits = padded_logits(
      reshape(step.model.output_in(position, order), {labels.elements(), step.classes}), step.classes, true);
  const Value flat = labels.rank() == 1 ? step.labels : reshape(step.labels, {labels.elements()});
  const CrossEntropy op{logits.shape().last() == step.classes ? 0 : step.classes};
  step.loss = mean(step.graph.add(op, std::vector<Value>{logits, flat})[0]);
}

// 0, 1, ... of all rows of a table.
Value all_rows(Value table) {
  const auto rows = static_cast<int32_t>(table.shape()[0]);
  const auto bytes = [rows] {
    std::vector<std::byte> made(sizeof(int32_t) * static_cast<size_t>(rows));
    for (int32_t row = 0; row < rows; ++row)
      std::memcpy(&made[sizeof row * static_cast<size_t>(row)], &row, sizeof row);
    return made;
  };
  return table.graph->variable(table.name() + "/rows", {DType::kI32, {rows}}, given(bytes));
}

// Ends the step with updates that set its states for the next one: rows where only these differ, everything
// else as a whole. What a state becomes is never the memory of another one, as the order of the updates would
// count.
void add_state_updates(Graph& graph, const ImportedModel& model) {
  std::vector<Value> all;
  for (const ImportedState& state : model.states)
    all.push_back(model.importer->value_in(state.next, in_order(state.next.rank())));
  const GraphView view(graph, {});
  const auto own = [&](int value) {
    int origin = value;
    while (view.op<Reshape>(view.maker(origin)) != nullptr) origin = view.input(view.maker(origin), 0);
    const Value found{&graph, value};
    return view.maker(origin) >= 0 ? found : broadcast_to(found, found.shape());
  };
  struct Update {
    int axis;
    std::vector<Value> operands;
  };
  std::vector<Update> whole;
  std::map<std::tuple<int, int, std::string>, Update> rows;  // by axis, indices and device
  for (size_t i = 0; i < all.size(); ++i) {
    const Value state = model.states[i].variable, next = all[i];
    if (next == state || state.shape().elements() == 0) continue;
    const int maker = view.maker(next.id);
    const auto* replaces = view.op<ReplaceRows>(maker);
    if (replaces == nullptr || view.input(maker, 0) != state.id) {
      whole.push_back({0, {all_rows(state), state, own(next.id)}});
      continue;
    }
    const int indices = view.input(maker, 1);
    Update& update = rows[{replaces->axis, indices, graph.value(state.id).device}];
    if (update.operands.empty()) update = {replaces->axis, {own(indices)}};
    update.operands.insert(update.operands.end(), {state, own(view.input(maker, 2))});
  }
  for (const auto& [key, update] : rows) graph.add(RowUpdate{update.axis}, update.operands);
  for (const Update& update : whole) graph.add(RowUpdate{update.axis}, update.operands);
}

// Keeps only what the targets need: nodes beside them would be readers of their operands.
void drop_others(Graph& graph, const Targets& targets) {
  const NeededNodes needed = find_needed_nodes(graph, targets);
  std::vector<int> ids = needed.pure;
  ids.insert(ids.end(), needed.updates.begin(), needed.updates.end());
  std::vector<Node> nodes;
  for (const int id : ids) nodes.push_back(graph.node(id));
  graph.replace_nodes(std::move(nodes));
}

std::vector<Value> values_of(const std::vector<BoundTensor>& tensors) {
  std::vector<Value> values;
  for (const BoundTensor& tensor : tensors) values.push_back(tensor.value);
  return values;
}

}  // namespace

std::vector<Value> ModelStep::parameters() const {
  return values_of(model.parameters);
}

std::unique_ptr<ModelStep> make_model_step(std::shared_ptr<const Model> model,
                                           const ModelStepSettings& settings) {
  auto step = std::make_unique<ModelStep>();
  Graph& graph = step->graph;
  put_scopes_on_devices(graph, settings.placed);
  const Value counter = graph.variable("train/step", {DType::kI32, {}}, zeros());
  step->learning_rate = graph.input("train/learning_rate", {DType::kF32, {}});
  ImportSettings import = settings.import;
  import.is_training = true;
  if (settings.fused && settings.precision != Precision::kF32) import.stores_half = true;
  import.step = counter;
  const std::string path = model->path;
  step->model = import_model(std::move(model), import, graph);
  try {
    if (step->model.parameters.empty()) throw InvalidArgument("has no weights to train");
    add_loss(*step, settings);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", path, error.what()));
  }
  if (settings.precision == Precision::kF16 && settings.replicas > 1)
    throw InvalidArgument("f16: replicas do not share a loss scale; take bf16");
  const std::vector<Value> parameters = step->parameters();
  const Optimizer optimizer = parse_optimizer(settings.optimizer);
  std::vector<Value> kept = {step->loss};
  if (settings.precision == Precision::kF16) {
    const NameScope scope(graph, "train");
    const AdaptiveScale scale = adaptive_scale(graph);
    step->gradients = gradients(mul(step->loss, scale.scale), parameters);
    add_scaled_updates(optimizer, parameters, step->gradients, step->learning_rate, counter, scale);
    if (settings.fetches_gradients) {
      step->inverse_scale = unary(UnaryKind::kReciprocal, scale.scale);
      kept.push_back(*step->inverse_scale);
    }
  } else {
    step->gradients = gradients(step->loss, parameters);
    add_updates(optimizer, parameters, step->gradients, step->learning_rate, counter, 1, settings.shard);
  }
  if (settings.fetches_gradients) kept.insert(kept.end(), step->gradients.begin(), step->gradients.end());
  if (settings.fused) fuse(graph, kept, settings.precision);
  require_scopes(graph, settings.placed);
  store_in(graph, settings.precision, kept);
  reduce_gradients(graph, settings.replicas, settings.buckets);
  return step;
}

std::vector<Value> ModelInference::parameters() const {
  return values_of(model.parameters);
}

std::unique_ptr<ModelInference> make_model_inference(std::shared_ptr<const Model> model,
                                                     const ModelStepSettings& settings) {
  auto inference = std::make_unique<ModelInference>();
  Graph& graph = inference->graph;
  put_scopes_on_devices(graph, settings.placed);
  ImportSettings import = settings.import;
  import.is_training = false;
  import.lora = {};
  if (settings.fused && settings.precision != Precision::kF32) import.stores_half = true;
  inference->model = import_model(std::move(model), import, graph);
  add_state_updates(graph, inference->model);
  for (size_t i = 0; i < inference->model.outputs.size(); ++i) {
    Value output = inference->model.output_in(i, in_order(inference->model.outputs[i].rank()));
    // A fetched value must be the result of a node: an input or a constant is copied.
    if (graph.value(output.id).kind != ValueKind::kResult) output = broadcast_to(output, output.shape());
    if (output.shape().rank() > 0 && output.spec().dtype == DType::kF32) {
      const Shape& shape = output.shape();
      const Value padded = padded_logits(output, shape.last(), false);
      const std::vector<int64_t> begin(static_cast<size_t>(shape.rank()), 0);
      if (padded.shape() != shape) output = slice(padded, begin, shape);
    }
    inference->outputs.push_back(output);
  }
  if (!inference->model.states.empty()) drop_others(graph, inference->targets());
  if (settings.fused) fuse(graph, inference->outputs, settings.precision);
  require_scopes(graph, settings.placed);
  store_in(graph, settings.precision, inference->outputs);
  return inference;
}

}  // namespace headroom::onnx
