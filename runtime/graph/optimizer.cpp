#include "runtime/graph/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/errors.h"
#include "base/text.h"
#include "runtime/graph/functions.h"

namespace headroom {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"sgd", "momentum", "rmsprop", "adam", "adamw"};

// State of one variable, or of a shard of it: zeros.
Value state(Value variable, std::string_view suffix, const Shard& shard, CodePlace place) {
  TensorSpec spec = variable.spec();
  if (!shard.is_whole()) spec.shape = {shard.size(spec.shape.elements())};
  const DeviceScope beside_it(*variable.graph, variable.graph->value(variable.id).device);
  return variable.graph->variable(fmt::format("{}/{}", variable.name(), suffix), spec, zeros(), place);
}

// `value` for a node on that device.
Value on_device(Value value, const std::string& device) {
  return value.graph->value(value.id).device == device ? value : to_device(value, device);
}

// In the order of their first variables.
std::vector<std::string> devices_in_order(std::span<const Value> variables) {
  std::vector<std::string> devices;
  for (const Value& variable : variables) {
    const std::string& device = variable.graph->value(variable.id).device;
    if (std::ranges::find(devices, device) == devices.end()) devices.push_back(device);
  }
  return devices;
}

// One node for all variables of a device.
struct Update {
  std::span<const Value> variables, gradients;
  Value learning_rate, step;
  float gradient_scale;
  std::optional<Value> scale;  // f32 [], beside gradient_scale
  Shard shard;
  CodePlace place;

  void add(const Op& op, std::vector<Value> inputs, std::initializer_list<std::string_view> states) const {
    if (scale) inputs.push_back(*scale);
    for (Value& shared : inputs) shared = on_device(shared, step.graph->value(variables[0].id).device);
    for (size_t i = 0; i < variables.size(); ++i) {
      inputs.push_back(variables[i]);
      inputs.push_back(gradients[i]);
      for (std::string_view suffix : states) inputs.push_back(state(variables[i], suffix, shard, place));
    }
    step.graph->add(op, inputs);
  }
  void operator()(const Sgd& o) const {
    const SgdUpdate op{o.momentum, o.nesterov, gradient_scale, shard, scale.has_value()};
    if (o.momentum != 0) return add(op, {learning_rate}, {"momentum"});
    add(op, {learning_rate}, {});
  }
  void operator()(const Rmsprop& o) const {
    add(RmspropUpdate{o.rho, o.epsilon, gradient_scale, shard, scale.has_value()}, {learning_rate},
        {"square"});
  }
  void operator()(const Adam& o) const { (*this)(AdamW{o.beta1, o.beta2, o.epsilon, 0}); }
  void operator()(const AdamW& o) const {
    add(AdamUpdate{o.beta1, o.beta2, o.epsilon, o.weight_decay, gradient_scale, shard, scale.has_value()},
        {learning_rate, step}, {"m", "v"});
  }
};

// One update for each device, of its variables.
void update_on_devices(const Optimizer& optimizer, std::span<const Value> variables,
                       std::span<const Value> gradients, Update update) {
  if (variables.size() != gradients.size()) {
    throw InvalidArgument(
        fmt::format("add_updates: {} variables and {} gradients", variables.size(), gradients.size()));
  }
  Graph& graph = *update.step.graph;
  for (const std::string& device : devices_in_order(variables)) {
    std::vector<Value> changed, by;
    for (size_t i = 0; i < variables.size(); ++i) {
      if (graph.value(variables[i].id).device != device) continue;
      changed.push_back(variables[i]);
      by.push_back(gradients[i]);
    }
    update.variables = changed;
    update.gradients = by;
    std::visit(update, optimizer);
    if (!update.shard.is_whole()) graph.add(AllGatherUpdate{update.shard.of}, changed);
  }
}

}  // namespace

std::span<const std::string_view> optimizer_names() {
  return kNames;
}

Optimizer parse_optimizer(std::string_view name) {
  if (name == "sgd") return Sgd{};
  if (name == "momentum") return Sgd{0.9f, false};
  if (name == "rmsprop") return Rmsprop{};
  if (name == "adam") return Adam{};
  if (name == "adamw") return AdamW{};
  throw InvalidArgument(
      fmt::format("optimizer '{}' is unknown; known are {}", name, list_with_suggestion(name, kNames)));
}

AdaptiveScale adaptive_scale(Graph& graph, CodePlace place) {
  return {graph.variable("loss_scale", {DType::kF32, {}}, constant_of(65536), place),
          graph.variable("loss_scale/streak", {DType::kI32, {}}, zeros(), place),
          graph.variable("loss_scale/updates", {DType::kI32, {}}, zeros(), place)};
}

void add_updates(const Optimizer& optimizer, std::span<const Value> variables,
                 std::span<const Value> gradients, Value learning_rate, Value step, float loss_scale,
                 const Shard& shard, CodePlace place) {
  update_on_devices(optimizer, variables, gradients,
                    {{}, {}, learning_rate, step, 1 / loss_scale, std::nullopt, shard, place});
  step.graph->add(CounterUpdate{}, std::vector<Value>{step});
}

void add_scaled_updates(const Optimizer& optimizer, std::span<const Value> variables,
                        std::span<const Value> gradients, Value learning_rate, Value step,
                        const AdaptiveScale& scale, CodePlace place) {
  Graph& graph = *step.graph;
  const Value finite = graph.add(AllFinite{}, gradients)[0];
  const Value inverse = where(finite, unary(UnaryKind::kReciprocal, scale.scale, 0, 0, place),
                              fill(graph, 0, {}, place), place);
  update_on_devices(optimizer, variables, gradients,
                    {{}, {}, learning_rate, scale.updates, 1, inverse, {}, place});
  graph.add(LossScaleUpdate{}, std::vector<Value>{finite, scale.scale, scale.streak, scale.updates});
  graph.add(CounterUpdate{}, std::vector<Value>{step});
}

}  // namespace headroom
