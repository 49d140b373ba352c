#include "runtime/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/categories.h"
#include "runtime/core/errors.h"
#include "runtime/memory_users.h"
#include "runtime/start_op.h"

namespace headroom {
namespace {

// How many steps are queued at a time, at most and within so many nodes. On an H200 a launch of its own costs
// a step of 12 tiny nodes 1.25 us; among 16 steps it costs 0.05 us, among 32 half of that. But each node
// takes 7 us to record and, where there are branches, some 15 KiB of the driver's memory.
constexpr int64_t kMostSteps = 16, kMostNodes = 4096;

// TensorFlow's words for a matrix product without a Blas handle, as users know them; of a fused node's
// products the first.
std::string describe_failed_matmul(const Node& node, const Graph& graph) {
  const auto* matmul = std::get_if<MatMul>(&node.op);
  const MatMul op = matmul ? *matmul : MatMul{};
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
    : graph_(graph), kernels_(std::make_shared<Kernels>(graph, variables.devices())), variables_(variables) {
  plan_ = make_plan(graph, targets, mode, workspaces(*kernels_));
  bind();
}

Session::Session(const Graph& graph, Plan plan, std::shared_ptr<const Kernels> kernels, Variables& variables)
    : graph_(graph), plan_(std::move(plan)), kernels_(std::move(kernels)), variables_(variables) {
  bind();
}

Session::~Session() {
  variables_.allocator().deallocate(input_sets_, 2 * plan_.input_set_bytes);
  release_arenas();
}

// Resolves every pointer that can be known now and notes which ones follow a buffer, so that a run only fills
// in addresses.
void Session::bind() {
  if (&variables_.graph() != &graph_) throw InvalidArgument("session: the variables are another graph's");
  categories_ = categorise(graph_);
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
  for (const PlanDevice& device : plan_.devices) devices_.push_back(&variables_.devices().find(device.name));
  for (const Step& step : plan_.steps) {
    if (step.kind == StepKind::kCopyIn) {
      inputs_.push_back(
          {step.id, HostBuffer(home_of(step.id).device->memory(), graph_.value(step.id).spec.bytes())});
    }
    if (step.kind == StepKind::kCopyOut) {
      outputs_.push_back(
          {step.id, HostBuffer(home_of(step.id).device->memory(), graph_.value(step.id).spec.bytes())});
    }
    if (step.kind != StepKind::kRun) continue;
    const Node& node = graph_.node(step.id);
    BoundNode& bound = nodes_[static_cast<size_t>(step.id)];
    bound.on = &variables_.devices().find(node.device);
    bound.is_between_devices =
        std::holds_alternative<CopyToDevice>(node.op) && home_of(node.inputs[0]).device != bound.on->device;
    bound.kernel = &kernels_->of_node(step.id);
    Part& part = is_update(node.op) ? updates_ : pure_;
    part.nodes.push_back(step.id);
    DeviceCollective* const collective = bound.kernel->collective();
    if (collective != nullptr) collective_ = collective;
    const bool can_be_recorded = collective == nullptr || collective->can_be_recorded();
    part.can_be_recorded = part.can_be_recorded && can_be_recorded && unrecorded_because().empty();
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
  const auto nodes = static_cast<int64_t>(pure_.nodes.size() + updates_.nodes.size());
  most_of_many_ = std::clamp<int64_t>(kMostNodes / std::max<int64_t>(1, nodes), 1, kMostSteps);
  if (has_arena(plan_.mode)) {
    allocate_arenas();
    for (size_t id = 0; id < plan_.buffers.size(); ++id) {
      const Buffer& buffer = plan_.buffers[id];
      if (buffer.doubled) continue;
      void* const arena = arenas_[static_cast<size_t>(buffer.device)];
      set_buffer(static_cast<int>(id), static_cast<std::byte*>(arena) + buffer.offset_bytes);
    }
  }
  if (plan_.input_set_bytes == 0) return;
  try {
    input_sets_ = static_cast<std::byte*>(
        variables_.allocator().allocate(2 * plan_.input_set_bytes, {}, user_of_input_sets()));
    for (const Buffer& buffer : plan_.buffers) {
      for (const int set : {0, 1}) {
        if (!buffer.doubled) continue;
        observe_part(variables_.allocator(), input_set(set), buffer, 0, static_cast<int>(plan_.steps.size()));
      }
    }
  } catch (...) {
    release_arenas();
    throw;
  }
  use_set(0);
}

void Session::use_set(int set) {
  set_ = set;
  for (size_t id = 0; id < plan_.buffers.size(); ++id) {
    const Buffer& buffer = plan_.buffers[id];
    if (buffer.doubled) set_buffer(static_cast<int>(id), input_set(set) + buffer.offset_bytes);
  }
}

int64_t Session::offset_in_input_set(const Value& value) const {
  if (value.graph != &graph_) throw InvalidArgument("the value belongs to another graph");
  const int id = plan_.buffer_of_value[static_cast<size_t>(value.id)];
  if (id < 0 || !plan_.buffers[static_cast<size_t>(id)].doubled) {
    throw InvalidArgument(fmt::format("{} is not a doubled input of this plan", value.name()));
  }
  return plan_.buffers[static_cast<size_t>(id)].offset_bytes;
}

void Session::allocate_arenas() {
  try {
    for (size_t i = 0; i < devices_.size(); ++i) {
      Allocator& allocator = *devices_[i]->allocator;
      arenas_.push_back(allocator.allocate(plan_.devices[i].peak_bytes, {}, user_of_arena()));
      for (const Buffer& buffer : plan_.buffers) {
        if (buffer.doubled || buffer.device != static_cast<int>(i)) continue;
        observe_part(allocator, static_cast<std::byte*>(arenas_[i]), buffer, buffer.first_step,
                     buffer.end_step);
      }
    }
  } catch (...) {
    release_arenas();
    throw;
  }
}

// Of zero bytes there is nothing to tell.
void Session::observe_part(Allocator& allocator, std::byte* block, const Buffer& buffer, int first,
                           int end) const {
  if (buffer.bytes == 0) return;
  allocator.observe_part(block + buffer.offset_bytes, buffer.bytes, first, end,
                         user_of(buffer, graph_, categories_));
}

// Last in, first out, as with variables.
void Session::release_arenas() noexcept {
  for (size_t i = arenas_.size(); i-- > 0;) {
    devices_[i]->allocator->deallocate(arenas_[i], plan_.devices[i].peak_bytes);
  }
  arenas_.clear();
}

void Session::set_buffer(int id, void* pointer) {
  buffers_[static_cast<size_t>(id)] = pointer;
  for (void** use : uses_of_buffer_[static_cast<size_t>(id)]) *use = pointer;
}

void Session::allocate(int id) {
  const Buffer& buffer = plan_.buffers[static_cast<size_t>(id)];
  set_buffer(
      id, device_of(buffer).allocator->allocate(buffer.bytes, stream_, user_of(buffer, graph_, categories_)));
}

void Session::deallocate(int id) noexcept {
  const Buffer& buffer = plan_.buffers[static_cast<size_t>(id)];
  device_of(buffer).allocator->deallocate(buffers_[static_cast<size_t>(id)], buffer.bytes, stream_);
  set_buffer(id, nullptr);
}

// Once per node: what it needs of the device.
void Session::get_ready(int id) {
  BoundNode& bound = nodes_[static_cast<size_t>(id)];
  if (bound.ready) return;
  const Node& node = graph_.node(id);
  try {
    start_op(node.op, *bound.on->device, *bound.on->allocator);
  } catch (const LibraryError& error) {
    const bool matmul = library_of(node.op) == Library::kBlas;
    LibraryError named(
        fmt::format("{} [[node {}]]", matmul ? describe_failed_matmul(node, graph_) : error.message(),
                    node.name),
        error.call(), error.status(), error.log());
    if (error.memory()) named.set_memory(*error.memory());
    throw named;
  }
  bound.ready = true;
  bound.on->allocator->observe_device();
}

void Session::get_ready(const std::vector<int>& nodes) {
  for (int id : nodes) get_ready(id);
}

void* Session::address_of(int value) const {
  const int variable = plan_.variable_of_value[static_cast<size_t>(value)];
  if (variable >= 0) return variables_.data(variable);
  const int buffer = plan_.buffer_of_value[static_cast<size_t>(value)];
  return buffer >= 0 ? buffers_[static_cast<size_t>(buffer)] : nullptr;
}

void Session::copy(const Step& step) {
  const bool in = step.kind == StepKind::kCopyIn;
  const HostBuffer& host = staging_of(step.id, in ? inputs_ : outputs_);
  if (host.empty()) return;
  Device& device = *home_of(step.id).device;
  const auto bytes = static_cast<int64_t>(host.size());
  if (in) {
    device.copy_to_device(address_of(step.id), host.data(), bytes, stream_);
  } else {
    device.copy_to_host(host.data(), address_of(step.id), bytes, stream_);
  }
}

void Session::run_node(int id, Stream stream) {
  BoundNode& bound = nodes_[static_cast<size_t>(id)];
  Device& device = *bound.on->device;
  if (devices_.size() > 1) device.initialise();  // kernels are launched on the current GPU of the thread
  if (device_takes_work_ && !bound.is_between_devices) return device.queue(stream, work_of(id));
  bound.run(stream);
}

void Session::synchronize() {
  for (const PlacedDevice* placed : devices_) placed->device->synchronize(stream_);
}

// With views of its own: by the time it runs those of the node may be another step's.
StreamWork Session::work_of(int id) const {
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

// Memory that is deallocated while a GPU still works on it goes to requests whose work is queued behind: all
// of it is on one stream of its device, and copies between devices are in order with both.
void Session::run_dynamic(bool is_last) {
  bool updating = false;
  for (const Step& step : plan_.steps) {
    switch (step.kind) {
      case StepKind::kAllocate:
        allocate(step.id);
        break;
      case StepKind::kDeallocate:
        deallocate(step.id);
        break;
      case StepKind::kCopyIn:
        if (copies_inputs_) copy(step);
        break;
      case StepKind::kCopyOut:
        if (is_last) copy(step);
        break;
      case StepKind::kRun: {
        BoundNode& bound = nodes_[static_cast<size_t>(step.id)];
        if (!updating && bound.outputs.empty()) {
          updating = true;
          begin_updates(is_last);
        }
        get_ready(step.id);
        run_node(step.id, stream_);
        break;
      }
    }
  }
}

// Whatever can still fail must do so before the first variable changes.
void Session::begin_updates(bool is_last) {
  get_ready(updates_.nodes);
  if (is_last && !updates_.nodes.empty()) synchronize();
}

// A CUDA graph that spans GPUs would need a stream of each in one capture.
std::string_view Session::unrecorded_because() const {
  const Device* const first = devices_.front()->device;
  for (const PlacedDevice* placed : devices_) {
    const bool has_gpu = first->kind() == DeviceKind::kCuda || placed->device->kind() == DeviceKind::kCuda;
    if (placed->device != first && has_gpu)
      return "a CUDA graph holds the work of one GPU, this plan spans more";
  }
  return {};
}

void Session::run_arena(int64_t steps) {
  for (const Step& step : plan_.steps) {
    if (step.kind == StepKind::kCopyIn && copies_inputs_) copy(step);
  }
  bool is_first = true;  // of the launches of many, before which no such recording is at work
  for (int64_t left = steps - 1; left > 0;) {
    const int64_t most = std::min(left, most_of_many_);
    if (is_first && most > std::max<int64_t>(1, steps_of_many_) && pure_.is_ready() && updates_.is_ready()) {
      many_.reset();
      steps_of_many_ = 0;
      many_ = record_steps(most);
      steps_of_many_ = most;
    }
    if (many_ != nullptr && left >= steps_of_many_) {
      many_->launch(stream_);
      is_first = false;
      left -= steps_of_many_;
    } else {
      queue_step();
      --left;
    }
  }
  run_part(pure_);
  for (const Step& step : plan_.steps) {
    if (step.kind == StepKind::kCopyOut) copy(step);
  }
  begin_updates(true);
  run_part(updates_);
}

std::unique_ptr<Recording> Session::record_steps(int64_t steps) {
  std::vector<int> nodes = pure_.nodes;
  nodes.insert(nodes.end(), updates_.nodes.begin(), updates_.nodes.end());
  return record(nodes, steps);
}

// One of a plan with an arena that is not the last of its run.
void Session::queue_step() {
  if (pure_.is_ready() && updates_.is_ready()) {
    std::unique_ptr<Recording>& whole = whole_steps_[static_cast<size_t>(set_)];
    if (whole == nullptr) whole = record_steps(1);
    return whole->launch(stream_);
  }
  run_part(pure_);
  begin_updates(false);
  run_part(updates_);
}

// The first time node by node, which loads what kernels load when they are launched; that cannot be recorded.
void Session::run_part(Part& part) {
  if (!part.is_ready()) {
    get_ready(part.nodes);
    for (int id : part.nodes) run_node(id, stream_);
    part.has_run = true;
    return;
  }
  if (part.nodes.empty()) return;
  std::unique_ptr<Recording>& recording = part.recordings[static_cast<size_t>(set_)];
  if (recording == nullptr) recording = record(part.nodes, 1);
  recording->launch(stream_);
}

// What the kernel reads before it waits must be variables that none of the nodes it waits for changes: the
// nodes before those are done by then.
bool Session::may_start_early(int id, const Waits& waits, const std::vector<int>& nodes) const {
  const std::optional<std::vector<int>> early = nodes_[static_cast<size_t>(id)].kernel->early_inputs();
  if (!early) return false;
  const auto changes = [&](int position, int value) {
    const Node& node = graph_.node(nodes[static_cast<size_t>(position)]);
    if (std::find(node.outputs.begin(), node.outputs.end(), value) != node.outputs.end()) return true;
    const std::vector<int> mutated = mutated_inputs(node.op, node.inputs.size());
    return std::any_of(mutated.begin(), mutated.end(),
                       [&](int i) { return node.inputs[static_cast<size_t>(i)] == value; });
  };
  return std::all_of(early->begin(), early->end(), [&](int input) {
    const int value = graph_.node(id).inputs[static_cast<size_t>(input)];
    const auto changed_by = [&](int position) { return changes(position, value); };
    return std::none_of(waits.after.begin(), waits.after.end(), changed_by) &&
           std::none_of(waits.after_previous.begin(), waits.after_previous.end(), changed_by);
  });
}

std::unique_ptr<Recording> Session::record(const std::vector<int>& nodes, int64_t repeats) {
  // A reshape has nothing to do: its result is its operand.
  std::vector<int> working;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(working),
               [&](int id) { return !std::holds_alternative<Reshape>(graph_.node(id).op); });
  const std::vector<Waits> waits = find_dependencies(graph_, plan_, working);
  std::vector<Task> tasks;
  const auto updates = [&](int id) { return is_update(graph_.node(id).op); };
  const bool may_fail_early = variables_.device().kind() == DeviceKind::kCpu;
  for (size_t i = 0; i < working.size(); ++i) {
    const int id = working[i];
    tasks.push_back({[this, id](Stream stream) { run_node(id, stream); }, waits[i].after,
                     waits[i].after_previous, may_start_early(working[i], waits[i], working),
                     nodes_[static_cast<size_t>(id)].kernel->collective() != nullptr});
  }
  // On several threads of the CPU a node that fails must do so before a variable changes.
  for (size_t i = 0; i < working.size() && may_fail_early; ++i) {
    for (size_t j = 0; j < i && updates(working[i]); ++j) {
      if (!updates(working[j])) tasks[i].after.push_back(static_cast<int>(j));
    }
  }
  Device& device = variables_.device();
  return with_idle_memory(variables_.allocator(), [&] {
    return collective_ == nullptr ? device.record(tasks, repeats)
                                  : collective_->record(device, tasks, repeats);
  });
}

void Session::run(int64_t steps) {
  if (steps < 1) throw InvalidArgument(fmt::format("a run of {} steps", steps));
  if (input_sets_ != nullptr) use_set(0);
  copies_inputs_ = true;
  run_whole(steps);
}

void Session::use_arrived_set(int set, const Event& arrival) {
  if (input_sets_ == nullptr) throw InvalidArgument("session: the plan has no doubled inputs");
  use_set(set);
  copies_inputs_ = false;
  variables_.device().wait(stream_, arrival);
}

void Session::run_on_set(int set, const Event& arrival) {
  use_arrived_set(set, arrival);
  run_whole(1);
}

std::unique_ptr<Event> Session::queue_on_set(int set, const Event& arrival) {
  use_arrived_set(set, arrival);
  std::unique_ptr<Event> end;
  guard_run([&] {
    if (has_arena(plan_.mode)) {
      queue_step();
    } else {
      run_dynamic(false);
    }
    end = variables_.device().record_event(stream_);
  });
  return end;
}

void Session::finish() {
  guard_run([&] { synchronize(); });
}

void Session::run_whole(int64_t steps) {
  guard_run([&] {
    if (has_arena(plan_.mode)) {
      run_arena(steps);
    } else {
      for (int64_t step = 1; step <= steps; ++step) run_dynamic(step == steps);
    }
    synchronize();
  });
}

void Session::guard_run(const std::function<void()>& work) {
  if (devices_.size() > 1 && stream_ != Stream{}) {
    throw InvalidArgument("a session on several devices runs on their default streams");
  }
  device_takes_work_ = std::any_of(devices_.begin(), devices_.end(), [&](const PlacedDevice* placed) {
    return placed->device->takes_work(stream_);
  });
  try {
    // The last one becomes the current GPU of this thread, which may have used another.
    for (size_t i = devices_.size(); i-- > 0;) devices_[i]->device->initialise();
    work();
  } catch (...) {
    clean_up();
    throw;
  }
}

// After an error nothing of the run goes on, and nothing stays allocated.
void Session::clean_up() noexcept {
  try {
    synchronize();
  } catch (const Error&) {  // the one at hand is told
  }
  if (has_arena(plan_.mode)) return;
  for (size_t id = 0; id < buffers_.size(); ++id) {
    if (buffers_[id] != nullptr && !plan_.buffers[id].doubled) deallocate(static_cast<int>(id));
  }
}

const HostBuffer& Session::staging_of(int value, std::vector<Staging>& all) {
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
  const HostBuffer& host = staging_of(value.id, all);
  return {host.data(), host.size()};
}

}  // namespace headroom
