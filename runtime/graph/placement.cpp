#include "runtime/graph/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "base/errors.h"

namespace headroom {
namespace {

std::string text_or_default(const std::string& device) {
  return device.empty() ? "the default device" : device;
}

// Returns the line of code that made the node, if known.
std::string line_of(const Graph& graph, const Node& node) {
  const std::string source = node.outputs.empty() ? "" : graph.value(node.outputs.front()).source;
  return source.empty() ? "" : " at " + source.substr(source.rfind('/') + 1);
}

// In PyTorch's words.
std::string two_devices(const Graph& graph, const Node& node, int input, const std::string& of_node,
                        const std::string& of_input) {
  return fmt::format(
      "Expected all tensors to be on the same device, but found at least two devices, {} and {}! ({}, node "
      "{}{}, "
      "runs on the first, {} lives on the second; copy it with to_device, or allow copies when the graph is "
      "placed: device-policy silent)",
      of_node, of_input, op_name(node.op), node.name, line_of(graph, node), graph.value(input).name);
}

class Placer {
 public:
  Placer(Graph& graph, std::span<const DeviceName> devices, const PlacementSettings& rules)
      : graph_(graph), devices_(devices), rules_(rules) {}

  // Throws before it changes the graph.
  void run() {
    settle_names();
    for (const Node& node : graph_.nodes()) check(node);
    for (size_t i = 0; i < device_.size(); ++i) graph_.set_device(static_cast<int>(i), device_[i]);
    std::vector<Node> nodes;
    for (size_t i = 0; i < graph_.nodes().size(); ++i) put(i, nodes);
    graph_.replace_nodes(std::move(nodes));
  }

 private:
  const std::string& device_of(int value) const { return device_[static_cast<size_t>(value)]; }

  // Returns the device's name as the graph writes it.
  std::string text_of(const DeviceName& device) const {
    return device == devices_.front() ? std::string() : device.text();
  }

  std::string available() const {
    std::vector<std::string> names;
    for (const DeviceName& device : devices_) names.push_back(device.full_text());
    return fmt::format("{}", fmt::join(names, ", "));
  }

  // Chooses the device of an input, a variable or a node. The words are TensorFlow's.
  std::string settle(const std::string& what, const std::string& wanted) const {
    const DeviceName name = wanted.empty() ? devices_.front() : parse_device_name(wanted);
    if (std::ranges::find(devices_, name) != devices_.end()) return text_of(name);
    if (rules_.allow_soft_placement) {
      const auto same_kind = [&](const DeviceName& device) { return device.type == name.type; };
      const auto found = std::ranges::find_if(devices_, same_kind);
      return text_of(found == devices_.end() ? devices_.front() : *found);
    }
    throw InvalidArgument(fmt::format(
        "Cannot assign a device for operation {}: {} was explicitly assigned to {} but available devices "
        "are [ {} ]. Make sure the device specification refers to a valid device.",
        what, what, name.text(), available()));
  }

  void settle_names() {
    device_.resize(graph_.values().size());
    for (size_t i = 0; i < device_.size(); ++i) {
      const ValueInfo& value = graph_.values()[i];
      if (value.kind != ValueKind::kResult) device_[i] = settle(value.name, value.device);
    }
    for (const Node& node : graph_.nodes()) {
      // An update cannot leave its variable.
      const std::vector<int> changed = mutated_inputs(node.op, node.inputs.size());
      const std::string& wanted =
          changed.empty() ? node.device : device_of(node.inputs[static_cast<size_t>(changed.front())]);
      node_device_.push_back(settle(node.name, wanted));
      for (int output : node.outputs) device_[static_cast<size_t>(output)] = node_device_.back();
    }
  }

  void check(const Node& node) {
    const std::string& device = node_device_[checked_++];
    const std::vector<int> changed = mutated_inputs(node.op, node.inputs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int input = node.inputs[i];
      const bool is_changed = std::ranges::find(changed, static_cast<int>(i)) != changed.end();
      if (device_of(input) != device && !std::holds_alternative<CopyToDevice>(node.op)) {
        if (is_changed || !(rules_.allow_copies || rules_.allow_soft_placement)) refuse(node, device, input);
        // Copies run before all updates: this one would come too early.
        if (is_update(node.op) && std::ranges::find(updated_, input) != updated_.end()) {
          throw InvalidArgument(fmt::format("{} on {} reads {} of {}, which an update before it changes",
                                            node.name, text_or_default(device), graph_.value(input).name,
                                            text_or_default(device_of(input))));
        }
      }
      if (is_changed) updated_.push_back(input);
    }
  }

  [[noreturn]] void refuse(const Node& node, const std::string& device, int input) const {
    const auto text = [&](const std::string& name) { return name.empty() ? devices_.front().text() : name; };
    throw InvalidArgument(two_devices(graph_, node, input, text(device), text(device_of(input))));
  }

  // Appends node i with the copies that it needs first.
  void put(size_t i, std::vector<Node>& nodes) {
    Node node = graph_.nodes()[i];
    node.device = node_device_[i];
    if (std::holds_alternative<CopyToDevice>(node.op)) {
      // Copies nothing: the result is another name of the same bytes.
      if (device_of(node.inputs[0]) == node.device) {
        node.op = Reshape{graph_.value(node.inputs[0]).spec.shape};
      }
    } else {
      for (int& input : node.inputs) {
        if (device_of(input) != node.device) input = copy_of(input, node.device, nodes);
      }
    }
    nodes.push_back(std::move(node));
  }

  // A copy that the program makes itself serves no other reader: it may come later than this one.
  int copy_of(int value, const std::string& device, std::vector<Node>& nodes) {
    const auto [found, is_new] = copies_.try_emplace({value, device}, -1);
    if (!is_new) return found->second;
    ValueInfo info = graph_.value(value);
    info.name += "/copy_to_device";
    info.device = device;
    const Value copy = graph_.new_result(std::move(info));
    found->second = copy.id;
    nodes.push_back(Node{CopyToDevice{}, copy.name(), {value}, {copy.id}, device});
    return copy.id;
  }

  Graph& graph_;
  std::span<const DeviceName> devices_;
  const PlacementSettings& rules_;
  std::vector<std::string> device_;       // by value
  std::vector<std::string> node_device_;  // by node
  size_t checked_ = 0;
  std::vector<int> updated_;                           // variables changed so far
  std::map<std::pair<int, std::string>, int> copies_;  // copy of a value on a device
};

bool names_a_device(const Graph& graph) {
  const auto has_name = [](const auto& part) { return !part.device.empty(); };
  const auto is_copy = [](const Node& node) { return std::holds_alternative<CopyToDevice>(node.op); };
  if (std::ranges::any_of(graph.nodes(), is_copy)) return true;
  return std::ranges::any_of(graph.values(), has_name) || std::ranges::any_of(graph.nodes(), has_name);
}

}  // namespace

void place(Graph& graph, std::span<const DeviceName> devices, const PlacementSettings& rules) {
  if (devices.empty()) throw InvalidArgument("place: there is no device");
  if (names_a_device(graph)) Placer(graph, devices, rules).run();
}

std::vector<ScopeOnDevice> parse_scopes_on_devices(std::string_view text) {
  std::vector<ScopeOnDevice> scopes;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t equals = part.find('=');
    if (equals == 0 || equals == std::string_view::npos) {
      throw InvalidArgument(fmt::format(
          "place: '{}' is not a scope with a device; write SCOPE=DEVICE, such as dense=/GPU:1", part));
    }
    const std::string scope(part.substr(0, equals));
    if (std::ranges::any_of(scopes, [&](const auto& other) { return other.scope == scope; })) {
      throw InvalidArgument(fmt::format("place: the scope '{}' stands there twice", scope));
    }
    scopes.push_back({scope, parse_device_name(part.substr(equals + 1)).text()});
  }
  return scopes;
}

void put_scopes_on_devices(Graph& graph, std::span<const ScopeOnDevice> scopes) {
  for (const auto& [scope, device] : scopes) graph.put_scope_on_device(scope, device);
}

void require_scopes(const Graph& graph, std::span<const ScopeOnDevice> scopes) {
  for (const auto& [scope, device] : scopes) {
    const std::string inside = fmt::format("/{}/", scope);
    const auto is_inside = [&](const auto& part) {
      return fmt::format("/{}/", part.name).find(inside) != std::string::npos;
    };
    if (std::ranges::any_of(graph.values(), is_inside)) continue;
    throw InvalidArgument(fmt::format("place: the graph has nothing in a scope '{}'", scope));
  }
}

std::vector<std::string> devices_of(const Graph& graph) {
  std::vector<std::string> names = {""};
  const auto add = [&](const std::string& device) {
    if (device.empty()) return;  // most, in a large graph
    if (std::ranges::find(names, device) == names.end()) names.push_back(device);
  };
  for (const ValueInfo& value : graph.values()) add(value.device);
  for (const Node& node : graph.nodes()) add(node.device);
  return names;
}

bool is_state_operand(const Node& node, size_t operand) {
  if (traits_of(node.op).changes != Changes::kWeights) return false;
  const UpdateOperands operands = update_operands(node.op);
  if (operand < operands.shared || (operand - operands.shared) % operands.per_variable == 0) return false;
  const std::vector<size_t>& changed = operands.changed;
  return std::ranges::find(changed, (operand - operands.shared) % operands.per_variable) != changed.end();
}

bool is_store_to_host(const Node& node) {
  return node.device == kHostPlace && std::holds_alternative<CopyToDevice>(node.op);
}

bool is_load_from_host(const Graph& graph, const Node& node) {
  return std::holds_alternative<CopyToDevice>(node.op) && graph.value(node.inputs[0]).device == kHostPlace;
}

std::string find_operand_elsewhere(const Graph& graph, const Node& node) {
  if (std::holds_alternative<CopyToDevice>(node.op)) return {};
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const int input = node.inputs[i];
    const ValueInfo& operand = graph.value(input);
    if (operand.device == node.device) continue;
    if (operand.device == kHostPlace && is_state_operand(node, i)) continue;
    return two_devices(graph, node, input, text_or_default(node.device), text_or_default(operand.device));
  }
  return {};
}

std::vector<std::string> placement_lines(const Graph& graph, const DeviceName& default_device) {
  return placement_lines(graph, [&](const std::string& device) {
    return device.empty() ? default_device : parse_device_name(device);
  });
}

std::vector<std::string> placement_lines(const Graph& graph,
                                         const std::function<DeviceName(const std::string&)>& name_of) {
  const auto full = [&](const std::string& device) { return name_of(device).full_text(); };
  std::vector<std::string> lines;
  for (const ValueInfo& value : graph.values()) {
    if (value.kind == ValueKind::kResult) continue;
    lines.push_back(fmt::format("{}: ({}): {}", value.name,
                                value.kind == ValueKind::kInput ? "input" : "variable", full(value.device)));
  }
  for (const Node& node : graph.nodes()) {
    lines.push_back(fmt::format("{}: ({}): {}", node.name, op_name(node.op), full(node.device)));
    if (!std::holds_alternative<CopyToDevice>(node.op)) continue;
    const ValueInfo& source = graph.value(node.inputs[0]);
    lines.back() += fmt::format(" from {}, {}", full(source.device), format_bytes(source.spec.bytes()));
  }
  return lines;
}

}  // namespace headroom
