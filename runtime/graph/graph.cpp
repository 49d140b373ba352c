#include "runtime/graph/graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "base/errors.h"
#include "device/device_name.h"

namespace headroom {
namespace {

// Returns the slot of a name in a hash table with linear probing: its own, or otherwise an empty one; null if
// all are used.
std::string* slot_of(std::vector<std::string>& table, std::string_view name) {
  const size_t hash = std::hash<std::string_view>()(name);
  for (size_t i = 0; i < table.size(); ++i) {
    std::string& slot = table[(hash + i) % table.size()];
    if (slot.empty() || slot == name) return &slot;
  }
  return nullptr;
}

bool has_name(std::vector<std::string>& table, std::string_view name) {
  const std::string* slot = slot_of(table, name);
  return slot != nullptr && *slot == name && !table.empty();
}

void add_name(std::vector<std::string>& table, size_t names, const std::string& name) {
  if (2 * names >= table.size() || slot_of(table, name) == nullptr) {
    std::vector<std::string> old(std::max<size_t>(64, 4 * table.size()));
    std::swap(old, table);
    for (std::string& each : old) {
      if (!each.empty()) *slot_of(table, each) = std::move(each);
    }
  }
  *slot_of(table, name) = name;
}

}  // namespace

const TensorSpec& Value::spec() const {
  return graph->value(id).spec;
}
const std::string& Value::name() const {
  return graph->value(id).name;
}

Value Graph::new_value(ValueInfo info) {
  values_.push_back(std::move(info));
  return {this, static_cast<int>(values_.size()) - 1};
}

std::string Graph::unique_name(std::string_view name) {
  const std::string base = scope_ + std::string(name);
  std::string candidate = base;
  // "matmul", "matmul_1", ...: TensorFlow's rule. Doubling and bisection find the end of a row of numbers.
  if (has_name(names_, base)) {
    const auto numbered = [&](int number) { return base + "_" + std::to_string(number); };
    int taken = 0, untaken = 1;
    while (has_name(names_, numbered(untaken))) {
      taken = untaken;
      untaken *= 2;
    }
    while (untaken - taken > 1) {
      const int middle = taken + (untaken - taken) / 2;
      (has_name(names_, numbered(middle)) ? taken : untaken) = middle;
    }
    candidate = numbered(untaken);
  }
  add_name(names_, nodes_.size() + values_.size(), candidate);
  return candidate;
}

std::string Graph::new_name(std::string_view what, std::string_view name) {
  const std::string full = scope_ + std::string(name);
  if (has_name(names_, full)) {
    throw InvalidArgument(fmt::format("{} {}: the name is taken", what, full));
  }
  return unique_name(name);
}

Value Graph::input(std::string_view name, const TensorSpec& spec, CodePlace place) {
  ValueInfo info{new_name("input", name), spec, ValueKind::kInput, {}, place.text()};
  info.device = device_by_name(info.name).value_or("");
  return new_value(std::move(info));
}

Value Graph::variable(std::string_view name, const TensorSpec& spec, const Initializer& initializer,
                      CodePlace place) {
  ValueInfo info{new_name("variable", name), spec, ValueKind::kVariable, initializer, place.text()};
  info.device = device_by_name(info.name).value_or("");
  return new_value(std::move(info));
}

void Graph::put_scope_on_device(std::string_view scope, std::string_view device) {
  device_of_scope_.emplace_back(fmt::format("/{}/", scope), parse_device_name(device).text());
  std::ranges::stable_sort(device_of_scope_,
                           [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
}

std::optional<std::string> Graph::device_by_name(const std::string& name) const {
  if (device_ || device_of_scope_.empty()) return device_;
  const std::string path = fmt::format("/{}/", name);
  for (const auto& [scope, device] : device_of_scope_) {
    if (path.find(scope) != std::string::npos) return device;
  }
  return std::nullopt;
}

std::string Graph::device_for(const Node& node, std::span<const Value> inputs) const {
  const auto device_of = [&](const Value& input) -> const std::string& { return value(input.id).device; };
  const std::vector<int> changed = mutated_inputs(node.op, inputs.size());
  if (!changed.empty()) return device_of(inputs[static_cast<size_t>(changed.front())]);
  if (std::optional<std::string> device = device_by_name(node.name)) return *device;
  const bool agree = std::ranges::all_of(
      inputs, [&](const Value& input) { return device_of(input) == device_of(inputs.front()); });
  return agree && !inputs.empty() ? device_of(inputs.front()) : std::string();
}

std::vector<Value> Graph::add(const Op& op, std::span<const Value> inputs, std::string_view name,
                              CodePlace place) {
  Node node{op, {}, {}, {}};
  std::vector<TensorSpec> specs;
  for (const Value& value : inputs) {
    if (value.graph != this) {
      throw InvalidArgument(fmt::format("{}: an operand belongs to another graph", op_name(op)));
    }
    node.inputs.push_back(value.id);
    specs.push_back(value.spec());
  }
  const std::vector<TensorSpec> outputs = infer_outputs(op, specs);
  for (int position : mutated_inputs(op, inputs.size())) {
    const Value& changed = inputs[static_cast<size_t>(position)];
    if (value(changed.id).kind != ValueKind::kVariable) {
      throw InvalidArgument(
          fmt::format("{}: changes {}, which is not a variable", op_name(op), changed.name()));
    }
  }
  node.name = unique_name(name.empty() ? op_name(op) : name);
  node.device = device_for(node, inputs);

  std::vector<Value> results;
  const bool backward = backward_of_ != nullptr;
  const std::string source = backward ? *backward_of_ : place.text();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string value_name = i == 0 ? node.name : fmt::format("{}:{}", node.name, i);
    results.push_back(
        new_value({value_name, outputs[i], ValueKind::kResult, {}, source, backward, node.device}));
    node.outputs.push_back(results.back().id);
  }
  nodes_.push_back(std::move(node));
  return results;
}

Value Graph::find(std::string_view name) {
  std::vector<std::string_view> known;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].kind == ValueKind::kResult) continue;
    if (values_[i].name == name) return {this, static_cast<int>(i)};
    known.push_back(values_[i].name);
  }
  throw InvalidArgument(
      fmt::format("no input or variable is named '{}'; there are: {}", name, fmt::join(known, ", ")));
}

std::vector<int> Graph::variables() const {
  std::vector<int> ids;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].kind == ValueKind::kVariable) ids.push_back(static_cast<int>(i));
  }
  return ids;
}

std::unique_ptr<Graph> Graph::copy() const {
  auto result = std::make_unique<Graph>();
  result->nodes_ = nodes_;
  result->values_ = values_;
  result->names_ = names_;
  result->device_of_scope_ = device_of_scope_;
  return result;
}

void Graph::replace_nodes(std::vector<Node> nodes) {
  std::vector<bool> made(values_.size());
  for (size_t i = 0; i < values_.size(); ++i) made[i] = values_[i].kind != ValueKind::kResult;
  for (const Node& node : nodes) {
    for (int input : node.inputs) {
      if (!made[static_cast<size_t>(input)]) {
        throw InvalidArgument(fmt::format("{} reads {} before it is made", node.name, value(input).name));
      }
    }
    for (int output : node.outputs) {
      made[static_cast<size_t>(output)] = true;
      set_device(output, node.device);
    }
  }
  nodes_.assign(std::make_move_iterator(nodes.begin()), std::make_move_iterator(nodes.end()));
}

Value Graph::new_result(ValueInfo info) {
  info.name = unique_name(info.name);
  info.kind = ValueKind::kResult;
  return new_value(std::move(info));
}

NameScope::NameScope(Graph& graph, std::string_view name) : graph_(graph), previous_(graph.scope_) {
  graph_.scope_ += fmt::format("{}/", name);
}

NameScope::~NameScope() {
  graph_.scope_ = previous_;
}

DeviceScope::DeviceScope(Graph& graph, std::string_view device) : graph_(graph), previous_(graph.device_) {
  graph_.device_ = device.empty() ? std::string() : parse_device_name(device).text();
}

DeviceScope::~DeviceScope() {
  graph_.device_ = std::move(previous_);
}

BackwardScope::BackwardScope(Graph& graph, const Value& forward)
    : graph_(graph), previous_(graph.backward_of_), device_(graph, graph.value(forward.id).device) {
  graph_.backward_of_ = &graph.value(forward.id).source;
}

BackwardScope::~BackwardScope() {
  graph_.backward_of_ = previous_;
}

}  // namespace headroom
