#include "runtime/session.h"

#include <fmt/format.h>

#include "runtime/core/errors.h"
#include "runtime/start_op.h"

namespace headroom {
namespace {

// TensorFlow's words for a matrix product without a Blas handle, as users know them.
std::string describe_failed_matmul(const Node& node, const Graph& graph) {
  const MatMul& op = std::get<MatMul>(node.op);
  const Shape &a = graph.value(node.inputs[0]).spec.shape, &b = graph.value(node.inputs[1]).spec.shape;
  const auto rows = [](const Shape& s) { return s[s.rank() - 2]; };
  const auto batch = [&](const Shape& s) { return s.elements() / std::max<int64_t>(1, rows(s) * s.last()); };
  return fmt::format("Blas xGEMM launch failed : a.shape=[{},{},{}], b.shape=[{},{},{}], m={}, n={}, k={}",
                     batch(a), rows(a), a.last(), batch(b), rows(b), b.last(),
                     op.transpose_a ? a.last() : rows(a), op.transpose_b ? rows(b) : b.last(),
                     op.transpose_a ? rows(a) : a.last());
}

std::vector<int64_t> workspaces(const Kernels& kernels) {
  return {kernels.workspace_bytes().begin(), kernels.workspace_bytes().end()};
}

}  // namespace

Session::Session(const Graph& graph, const Targets& targets, PlanMode mode, Variables& variables)
    : graph_(graph),
      kernels_(std::make_shared<Kernels>(graph, variables.device(), variables.allocator())),
      variables_(variables) {
  plan_ = make_plan(graph, targets, mode, workspaces(*kernels_));
  bind();
}

Session::Session(const Graph& graph, Plan plan, std::shared_ptr<const Kernels> kernels, Variables& variables)
    : graph_(graph), plan_(std::move(plan)), kernels_(std::move(kernels)), variables_(variables) {
  bind();
}

Session::~Session() {
  if (arena_ != nullptr) variables_.allocator().deallocate(arena_, plan_.peak_bytes);
}

// Resolves every pointer that can be known now and notes which ones follow a buffer, so that a run only fills
// in addresses.
void Session::bind() {
  if (&variables_.graph() != &graph_) throw InvalidArgument("session: the variables are another graph's");
  buffers_.assign(plan_.buffers.size(), nullptr);
  uses_of_buffer_.resize(plan_.buffers.size());
  nodes_.resize(graph_.nodes().size());
  const auto follow = [&](int buffer, void** pointer) {
    if (buffer >= 0) uses_of_buffer_[static_cast<size_t>(buffer)].push_back(pointer);
  };
  const auto view_of = [&](int id) {
    const int variable = plan_.variable_of_value[static_cast<size_t>(id)];
    return TensorView{variable >= 0 ? variables_.data(variable) : nullptr, graph_.value(id).spec};
  };
  for (const Step& step : plan_.steps) {
    if (step.kind == StepKind::kCopyIn) {
      inputs_.push_back(
          {step.id, std::vector<std::byte>(static_cast<size_t>(graph_.value(step.id).spec.bytes()))});
    }
    if (step.kind == StepKind::kCopyOut) {
      outputs_.push_back(
          {step.id, std::vector<std::byte>(static_cast<size_t>(graph_.value(step.id).spec.bytes()))});
    }
    if (step.kind != StepKind::kRun) continue;
    const Node& node = graph_.node(step.id);
    BoundNode& bound = nodes_[static_cast<size_t>(step.id)];
    bound.kernel = &kernels_->of_node(step.id);
    for (int id : node.inputs) bound.inputs.push_back(view_of(id));
    for (int id : node.outputs) bound.outputs.push_back(view_of(id));
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      follow(plan_.buffer_of_value[static_cast<size_t>(node.inputs[i])], &bound.inputs[i].data);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      follow(plan_.buffer_of_value[static_cast<size_t>(node.outputs[i])], &bound.outputs[i].data);
    }
    follow(plan_.workspace_of_node[static_cast<size_t>(step.id)], &bound.workspace);
  }
  if (plan_.mode == PlanMode::kDynamic || plan_.buffers.empty()) return;
  try {
    arena_ = variables_.allocator().allocate(plan_.peak_bytes);
  } catch (OutOfMemory& error) {
    error.set_user({}, "the arena of the packed plan");
    throw;
  }
  for (size_t id = 0; id < plan_.buffers.size(); ++id) {
    set_buffer(static_cast<int>(id), static_cast<std::byte*>(arena_) + plan_.buffers[id].offset_bytes);
  }
}

void Session::set_buffer(int id, void* pointer) {
  buffers_[static_cast<size_t>(id)] = pointer;
  for (void** use : uses_of_buffer_[static_cast<size_t>(id)]) *use = pointer;
}

void Session::allocate(int id) {
  const Buffer& buffer = plan_.buffers[static_cast<size_t>(id)];
  try {
    set_buffer(id, variables_.allocator().allocate(buffer.bytes));
  } catch (OutOfMemory& error) {
    error.set_user(buffer.node >= 0 ? graph_.node(buffer.node).name : "copy to device",
                   buffer.owner >= 0 ? graph_.value(buffer.owner).name : "workspace");
    throw;
  }
}

void Session::deallocate(int id) noexcept {
  variables_.allocator().deallocate(buffers_[static_cast<size_t>(id)],
                                    plan_.buffers[static_cast<size_t>(id)].bytes);
  set_buffer(id, nullptr);
}

// Once per node: what it needs of the device.
void Session::get_ready(int id) {
  BoundNode& bound = nodes_[static_cast<size_t>(id)];
  if (bound.ready) return;
  const Node& node = graph_.node(id);
  try {
    start_op(node.op, variables_.device(), variables_.allocator());
  } catch (const LibraryError& error) {
    const bool matmul = std::holds_alternative<MatMul>(node.op);
    throw LibraryError(fmt::format("{} [[node {}]]",
                                   matmul ? describe_failed_matmul(node, graph_) : error.what(), node.name),
                       error.call(), error.status(), error.log());
  }
  bound.ready = true;
}

// Whatever can still fail must do so before the first variable changes.
void Session::get_updates_ready() {
  if (updates_ready_) return;
  for (const Step& step : plan_.steps) {
    if (step.kind == StepKind::kRun) get_ready(step.id);
  }
  updates_ready_ = true;
}

void* Session::address_of(int value) const {
  const int variable = plan_.variable_of_value[static_cast<size_t>(value)];
  if (variable >= 0) return variables_.data(variable);
  const int buffer = plan_.buffer_of_value[static_cast<size_t>(value)];
  return buffer >= 0 ? buffers_[static_cast<size_t>(buffer)] : nullptr;
}

void Session::run_step(const Step& step) {
  DeviceMemory& memory = variables_.device().memory();
  switch (step.kind) {
    case StepKind::kAllocate:
      return allocate(step.id);
    case StepKind::kDeallocate:
      return deallocate(step.id);
    case StepKind::kCopyIn: {
      const std::vector<std::byte>& host = staging_of(step.id, inputs_);
      if (!host.empty())
        memory.copy_to_device(address_of(step.id), host.data(), static_cast<int64_t>(host.size()));
      return;
    }
    case StepKind::kCopyOut: {
      std::vector<std::byte>& host = staging_of(step.id, outputs_);
      if (!host.empty())
        memory.copy_to_host(host.data(), address_of(step.id), static_cast<int64_t>(host.size()));
      return;
    }
    case StepKind::kRun: {
      BoundNode& bound = nodes_[static_cast<size_t>(step.id)];
      if (!bound.ready) get_ready(step.id);
      bound.kernel->run(bound.inputs, bound.outputs, bound.workspace, {});
      return;
    }
  }
}

void Session::run() {
  try {
    for (const Step& step : plan_.steps) {
      const bool update = step.kind == StepKind::kRun && nodes_[static_cast<size_t>(step.id)].outputs.empty();
      if (update && !updates_ready_) get_updates_ready();
      run_step(step);
    }
    variables_.device().synchronize({});
  } catch (...) {
    if (plan_.mode == PlanMode::kDynamic) {
      for (size_t id = 0; id < buffers_.size(); ++id) {
        if (buffers_[id] != nullptr) deallocate(static_cast<int>(id));
      }
    }
    throw;
  }
}

std::vector<std::byte>& Session::staging_of(int value, std::vector<Staging>& all) {
  for (Staging& staging : all) {
    if (staging.value == value) return staging.bytes;
  }
  throw InvalidArgument(fmt::format("{} is {} this plan", graph_.value(value).name,
                                    &all == &inputs_ ? "not an input of" : "not fetched by"));
}

std::span<std::byte> Session::staging(const Value& value, DType dtype, std::vector<Staging>& all) {
  if (value.graph != &graph_) throw InvalidArgument("the value belongs to another graph");
  if (value.spec().dtype != dtype) {
    throw InvalidArgument(
        fmt::format("{} is {}, not {}", value.name(), to_string(value.spec()), to_string(dtype)));
  }
  return staging_of(value.id, all);
}

}  // namespace headroom
