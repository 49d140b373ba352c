#include "runtime/optimizer.h"

#include <fmt/format.h>

#include <array>

#include "runtime/core/errors.h"
#include "runtime/core/suggest.h"

namespace headroom {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"sgd", "momentum", "rmsprop", "adam", "adamw"};

// State of one variable: zeros of its shape.
Value state(Value variable, std::string_view suffix) {
  return variable.graph->variable(fmt::format("{}/{}", variable.name(), suffix), variable.spec(), zeros());
}

struct Step {
  Value variable, gradient, learning_rate, step;

  void add(const Op& op, std::vector<Value> inputs) const {
    variable.graph->add(op, inputs, fmt::format("{}/update", variable.name()));
  }
  void operator()(const Sgd& o) const {
    std::vector<Value> inputs = {variable, gradient, learning_rate};
    if (o.momentum != 0) inputs.push_back(state(variable, "momentum"));
    add(SgdUpdate{o.momentum, o.nesterov}, inputs);
  }
  void operator()(const Rmsprop& o) const {
    add(RmspropUpdate{o.rho, o.epsilon}, {variable, gradient, learning_rate, state(variable, "square")});
  }
  void operator()(const Adam& o) const { (*this)(AdamW{o.beta1, o.beta2, o.epsilon, 0}); }
  void operator()(const AdamW& o) const {
    add(AdamUpdate{o.beta1, o.beta2, o.epsilon, o.weight_decay},
        {variable, gradient, learning_rate, step, state(variable, "m"), state(variable, "v")});
  }
};

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

void add_updates(const Optimizer& optimizer, std::span<const Value> variables,
                 std::span<const Value> gradients, Value learning_rate, Value step) {
  if (variables.size() != gradients.size()) {
    throw InvalidArgument(
        fmt::format("add_updates: {} variables and {} gradients", variables.size(), gradients.size()));
  }
  for (size_t i = 0; i < variables.size(); ++i) {
    std::visit(Step{variables[i], gradients[i], learning_rate, step}, optimizer);
  }
  step.graph->add(CounterUpdate{}, std::vector<Value>{step});
}

}  // namespace headroom
