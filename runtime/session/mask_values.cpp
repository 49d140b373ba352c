#include "runtime/session/mask_values.h"

#include <algorithm>
#include <optional>

#include "base/bytes.h"

namespace headroom {
namespace {

constexpr int64_t kMaskAlignment = 256;

// Returns, by value, true if it is the same in every step: variables that no node changes, and values
// computed only from them.
std::vector<bool> find_constants(const Graph& graph) {
  std::vector<bool> is_constant(graph.values().size());
  for (const int variable : graph.variables()) is_constant[static_cast<size_t>(variable)] = true;
  for (const Node& node : graph.nodes()) {
    for (const int i : mutated_inputs(node.op, node.inputs.size()))
      is_constant[static_cast<size_t>(node.inputs[static_cast<size_t>(i)])] = false;
  }
  for (const Node& node : graph.nodes()) {
    const bool all =
        std::ranges::all_of(node.inputs, [&](int input) { return is_constant[static_cast<size_t>(input)]; });
    for (const int output : node.outputs)
      is_constant[static_cast<size_t>(output)] = all && !node.inputs.empty();
  }
  return is_constant;
}

// Returns the position of a mask among the operands of attention; its tiles follow.
std::optional<size_t> mask_place(const Graph& graph, const Node& node) {
  std::vector<TensorSpec> operands;
  for (const int input : node.inputs) operands.push_back(graph.value(input).spec);
  if (const auto* op = std::get_if<Attention>(&node.op)) return HeadOperands(*op, operands).mask();
  if (const auto* op = std::get_if<AttentionGrad>(&node.op)) return HeadOperands(*op, operands).mask();
  if (std::holds_alternative<CachedAttention>(node.op)) return CachedAttention::kMask;
  return {};
}

}  // namespace

MaskValues::MaskValues(const Graph& graph, const Kernels& kernels, Device& device)
    : graph_(graph), kernels_(kernels), device_(device), offsets_(graph.values().size(), -1) {
  const std::vector<bool> is_constant = find_constants(graph);
  std::vector<bool> is_needed(graph.values().size());
  for (const Node& node : graph.nodes()) {
    const size_t first = mask_place(graph, node).value_or(node.inputs.size());
    for (size_t i = first; i < node.inputs.size(); ++i) {
      const auto operand = static_cast<size_t>(node.inputs[i]);
      is_needed[operand] = is_needed[operand] || is_constant[operand];
    }
  }
  for (size_t id = graph.nodes().size(); id-- > 0;) {
    const Node& node = graph.nodes()[id];
    const auto is_wanted = [&](int output) { return is_needed[static_cast<size_t>(output)]; };
    if (std::ranges::none_of(node.outputs, is_wanted)) continue;
    nodes_.push_back(static_cast<int>(id));
    for (const int value : node.inputs) is_needed[static_cast<size_t>(value)] = true;
    for (const int value : node.outputs) is_needed[static_cast<size_t>(value)] = true;
    bytes_ = std::max(bytes_, kernels.workspace_bytes()[id]);
  }
  std::ranges::reverse(nodes_);
  bytes_ = round_up(bytes_, kMaskAlignment);  // workspaces come first
  for (size_t value = 0; value < is_needed.size(); ++value) {
    if (!is_needed[value]) continue;
    offsets_[value] = bytes_;
    bytes_ += round_up(graph.value(static_cast<int>(value)).spec.bytes(), kMaskAlignment);
  }
}

MaskValues::~MaskValues() {
  if (data_ != nullptr) device_.memory().release(data_, bytes_);
}

std::byte* MaskValues::data(int value) const {
  return data_ == nullptr ? nullptr : data_ + offsets_[static_cast<size_t>(value)];
}

bool MaskValues::compute() {
  if (bytes_ == 0 || data_ != nullptr) return true;
  data_ = static_cast<std::byte*>(device_.memory().try_allocate(bytes_));
  if (data_ == nullptr) return false;
  for (const int variable : graph_.variables()) {
    const ValueInfo& info = graph_.value(variable);
    if (!contains(variable) || info.initializer.kind == Initializer::Kind::kNone) continue;
    std::vector<std::byte> made;
    const std::span<const std::byte> initial = initial_bytes(info.initializer, info.name, info.spec, made);
    device_.memory().copy_to_device(data(variable), initial.data(), std::ssize(initial));
  }
  const auto views_of = [&](const std::vector<int>& values) {
    std::vector<TensorView> views;
    for (const int value : values) views.push_back({data(value), graph_.value(value).spec});
    return views;
  };
  for (const int id : nodes_) {
    const Node& node = graph_.node(id);
    if (std::holds_alternative<Reshape>(node.op)) {
      offsets_[static_cast<size_t>(node.outputs[0])] = offsets_[static_cast<size_t>(node.inputs[0])];
      continue;
    }
    kernels_.of_node(id).run(views_of(node.inputs), views_of(node.outputs), data_, {});
  }
  device_.streams().synchronize({});
  return true;
}

}  // namespace headroom
