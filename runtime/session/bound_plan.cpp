#include "runtime/session/bound_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/errors.h"
#include "runtime/graph/categories.h"
#include "runtime/plan/memory_users.h"

namespace headroom {
namespace {

// Of zero bytes there is nothing to tell.
void observe(Allocator& allocator, std::byte* block, const Buffer& buffer, int first, int end,
             const MemoryUser& user) {
  if (buffer.bytes == 0) return;
  allocator.observe_part(block + buffer.offset_bytes, buffer.bytes, first, end, user);
}

}  // namespace

BoundPlan::BoundPlan(const Graph& graph, Plan plan, std::shared_ptr<const Kernels> kernels,
                     Variables& variables)
    : graph_(graph),
      plan_(std::move(plan)),
      kernels_(std::move(kernels)),
      variables_(variables),
      categories_(categorise(graph)),
      nodes_(graph.nodes().size()),
      buffers_(plan_.buffers.size(), nullptr),
      uses_of_buffer_(plan_.buffers.size()) {
  if (&variables_.graph() != &graph_) throw InvalidArgument("session: the variables are another graph's");
  for (const PlanDevice& device : plan_.devices) devices_.push_back(&variables_.devices().find(device.name));
  for (const Step& step : plan_.steps) {
    if (step.kind == StepKind::kRun) bind_node(step.id);
  }
  try {
    if (has_arena(plan_.mode)) allocate_arenas();
    if (plan_.input_set_bytes > 0) allocate_input_sets();
  } catch (...) {
    release_memory();
    throw;
  }
}

BoundPlan::~BoundPlan() {
  release_memory();
}

// Notes which of the node's pointers follow a buffer.
void BoundPlan::bind_node(int id) {
  const Node& node = graph_.node(id);
  BoundNode& bound = nodes_[static_cast<size_t>(id)];
  bound.on = &variables_.devices().find(node.device);
  bound.is_between_devices =
      std::holds_alternative<CopyToDevice>(node.op) && home_of(node.inputs[0]).device != bound.on->device;
  bound.kernel = &kernels_->of_node(id);
  const auto views_of = [&](const std::vector<int>& values) {
    std::vector<TensorView> views;
    for (int value : values) {
      const int variable = plan_.variable_of_value[static_cast<size_t>(value)];
      views.push_back({variable >= 0 ? variables_.data(variable) : nullptr, graph_.value(value).spec});
    }
    return views;
  };
  bound.inputs = views_of(node.inputs);
  bound.outputs = views_of(node.outputs);
  const auto follow = [&](int buffer, void** pointer) {
    if (buffer >= 0) uses_of_buffer_[static_cast<size_t>(buffer)].push_back(pointer);
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    follow(plan_.buffer_of_value[static_cast<size_t>(node.inputs[i])], &bound.inputs[i].data);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    follow(plan_.buffer_of_value[static_cast<size_t>(node.outputs[i])], &bound.outputs[i].data);
  }
  follow(plan_.workspace_of_node[static_cast<size_t>(id)], &bound.workspace);
}

void BoundPlan::allocate_arenas() {
  for (size_t i = 0; i < devices_.size(); ++i) {
    Allocator& allocator = *devices_[i]->allocator;
    arenas_.push_back(allocator.allocate(plan_.devices[i].peak_bytes, {}, user_of_arena()));
    auto* const arena = static_cast<std::byte*>(arenas_[i]);
    for (size_t id = 0; id < plan_.buffers.size(); ++id) {
      const Buffer& buffer = plan_.buffers[id];
      if (buffer.doubled || buffer.device != static_cast<int>(i)) continue;
      observe(allocator, arena, buffer, buffer.first_step, buffer.end_step,
              user_of(buffer, graph_, categories_));
      set_buffer(static_cast<int>(id), arena + buffer.offset_bytes);
    }
  }
}

void BoundPlan::allocate_input_sets() {
  Allocator& allocator = variables_.allocator();
  input_sets_ =
      static_cast<std::byte*>(allocator.allocate(2 * plan_.input_set_bytes, {}, user_of_input_sets()));
  for (const Buffer& buffer : plan_.buffers) {
    for (const int set : {0, 1}) {
      if (!buffer.doubled) continue;
      observe(allocator, input_set(set), buffer, 0, static_cast<int>(plan_.steps.size()),
              user_of(buffer, graph_, categories_));
    }
  }
  use_set(0);
}

// Last in, first out, as with variables.
void BoundPlan::release_memory() noexcept {
  variables_.allocator().deallocate(input_sets_, 2 * plan_.input_set_bytes);
  for (size_t i = arenas_.size(); i-- > 0;) {
    devices_[i]->allocator->deallocate(arenas_[i], plan_.devices[i].peak_bytes);
  }
}

void BoundPlan::set_buffer(int id, void* pointer) {
  buffers_[static_cast<size_t>(id)] = pointer;
  for (void** use : uses_of_buffer_[static_cast<size_t>(id)]) *use = pointer;
}

void BoundPlan::allocate(int id, Stream stream) {
  const Buffer& buffer = plan_.buffers[static_cast<size_t>(id)];
  set_buffer(
      id, device_of(buffer).allocator->allocate(buffer.bytes, stream, user_of(buffer, graph_, categories_)));
}

void BoundPlan::deallocate(int id, Stream stream) noexcept {
  const Buffer& buffer = plan_.buffers[static_cast<size_t>(id)];
  device_of(buffer).allocator->deallocate(buffers_[static_cast<size_t>(id)], buffer.bytes, stream);
  set_buffer(id, nullptr);
}

void BoundPlan::deallocate_all(Stream stream) noexcept {
  if (has_arena(plan_.mode)) return;
  for (size_t id = 0; id < buffers_.size(); ++id) {
    if (buffers_[id] != nullptr && !plan_.buffers[id].doubled) deallocate(static_cast<int>(id), stream);
  }
}

void BoundPlan::use_set(int set) {
  set_ = set;
  for (size_t id = 0; id < plan_.buffers.size(); ++id) {
    const Buffer& buffer = plan_.buffers[id];
    if (buffer.doubled) set_buffer(static_cast<int>(id), input_set(set) + buffer.offset_bytes);
  }
}

int64_t BoundPlan::offset_in_input_set(const Value& value) const {
  if (value.graph != &graph_) throw InvalidArgument("the value belongs to another graph");
  const int id = plan_.buffer_of_value[static_cast<size_t>(value.id)];
  if (id < 0 || !plan_.buffers[static_cast<size_t>(id)].doubled) {
    throw InvalidArgument(fmt::format("{} is not a doubled input of this plan", value.name()));
  }
  return plan_.buffers[static_cast<size_t>(id)].offset_bytes;
}

void* BoundPlan::address_of(int value) const {
  const int variable = plan_.variable_of_value[static_cast<size_t>(value)];
  if (variable >= 0) return variables_.data(variable);
  const int buffer = plan_.buffer_of_value[static_cast<size_t>(value)];
  return buffer >= 0 ? buffers_[static_cast<size_t>(buffer)] : nullptr;
}

StreamWork BoundPlan::work_of(int id) const {
  const BoundNode& bound = nodes_[static_cast<size_t>(id)];
  const Node& node = graph_.node(id);
  StreamWork work{[bound](Stream stream) { bound.run(stream); }, node.name};
  if (std::holds_alternative<Reshape>(node.op)) return work;
  const std::vector<int> mutated = mutated_inputs(node.op, node.inputs.size());
  const auto use = [&](const TensorView& view, int value, bool writes) {
    const ValueInfo& info = graph_.value(value);
    if (writes) work.place = info.source;
    if (view.data != nullptr) work.uses.push_back({view.data, info.spec.bytes(), writes, info.name});
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    use(bound.inputs[i], node.inputs[i],
        std::find(mutated.begin(), mutated.end(), static_cast<int>(i)) != mutated.end());
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) use(bound.outputs[i], node.outputs[i], true);
  const int workspace = plan_.workspace_of_node[static_cast<size_t>(id)];
  if (workspace >= 0) {
    work.uses.push_back(
        {bound.workspace, plan_.buffers[static_cast<size_t>(workspace)].bytes, true, "its workspace"});
  }
  return work;
}

}  // namespace headroom
