#include "runtime/session/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/errors.h"
#include "runtime/session/recorded_tasks.h"
#include "runtime/session/start_op.h"

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

Plan plan_with(const Kernels& kernels, const Graph& graph, const Targets& targets, PlanMode mode) {
  return make_plan(graph, targets, mode,
                   {kernels.workspace_bytes().begin(), kernels.workspace_bytes().end()});
}

}  // namespace

Session::Session(const Graph& graph, const Targets& targets, PlanMode mode, Variables& variables)
    : Session(graph, targets, mode, std::make_shared<Kernels>(graph, variables.devices()), variables) {}

Session::Session(const Graph& graph, const Targets& targets, PlanMode mode,
                 std::shared_ptr<const Kernels> kernels, Variables& variables)
    : Session(graph, plan_with(*kernels, graph, targets, mode), kernels, variables) {}

Session::Session(const Graph& graph, Plan plan, std::shared_ptr<const Kernels> kernels, Variables& variables)
    : bound_(graph, std::move(plan), std::move(kernels), variables), is_ready_(graph.nodes().size()) {
  for (const Step& step : bound_.plan().steps) {
    if (step.kind == StepKind::kRun) {
      const BoundNode& node = bound_.node(step.id);
      Part& part = is_update(graph.node(step.id).op) ? updates_ : pure_;
      part.nodes.push_back(step.id);
      DeviceCollective* const collective = node.kernel->collective();
      if (collective != nullptr) collective_ = collective;
      const bool can_be_recorded = collective == nullptr || collective->can_be_recorded();
      part.can_be_recorded = part.can_be_recorded && can_be_recorded && unrecorded_because().empty();
    } else if (step.kind == StepKind::kCopyIn || step.kind == StepKind::kCopyOut) {
      std::vector<Staging>& all = step.kind == StepKind::kCopyIn ? inputs_ : outputs_;
      DeviceMemory& memory = bound_.home_of(step.id).device->memory();
      all.push_back({step.id, HostBuffer(memory, graph.value(step.id).spec.bytes())});
    }
  }
  const auto nodes = static_cast<int64_t>(pure_.nodes.size() + updates_.nodes.size());
  most_of_many_ = std::clamp<int64_t>(kMostNodes / std::max<int64_t>(1, nodes), 1, kMostSteps);
}

// Once per node: what it needs of the device.
void Session::get_ready(int id) {
  if (is_ready_[static_cast<size_t>(id)]) return;
  const PlacedDevice& on = *bound_.node(id).on;
  const Node& node = graph().node(id);
  try {
    start_op(node.op, *on.device, *on.allocator);
  } catch (const LibraryError& error) {
    const bool matmul = library_of(node.op) == Library::kBlas;
    LibraryError named(
        fmt::format("{} [[node {}]]", matmul ? describe_failed_matmul(node, graph()) : error.message(),
                    node.name),
        error.call(), error.status(), error.log());
    if (error.memory()) named.set_memory(*error.memory());
    throw named;
  }
  is_ready_[static_cast<size_t>(id)] = true;
  on.allocator->observe_device();
}

void Session::get_ready(const std::vector<int>& nodes) {
  for (int id : nodes) get_ready(id);
}

void Session::copy(const Step& step) {
  const bool in = step.kind == StepKind::kCopyIn;
  const HostBuffer& host = staging_of(step.id, in ? inputs_ : outputs_);
  if (host.empty()) return;
  Device& device = *bound_.home_of(step.id).device;
  const auto bytes = static_cast<int64_t>(host.size());
  if (in) {
    device.copy_to_device(bound_.address_of(step.id), host.data(), bytes, stream_);
  } else {
    device.copy_to_host(host.data(), bound_.address_of(step.id), bytes, stream_);
  }
}

void Session::run_node(int id, Stream stream) {
  const BoundNode& bound = bound_.node(id);
  Device& device = *bound.on->device;
  // Kernels are launched on the current GPU of the thread.
  if (bound_.devices().size() > 1) device.initialise();
  if (device_takes_work_ && !bound.is_between_devices) return device.queue(stream, bound_.work_of(id));
  bound.run(stream);
}

void Session::synchronize() {
  for (const PlacedDevice* placed : bound_.devices()) placed->device->synchronize(stream_);
}

// Memory that is deallocated while a GPU still works on it goes to requests whose work is queued behind: all
// of it is on one stream of its device, and copies between devices are in order with both.
void Session::run_dynamic(bool is_last) {
  bool updating = false;
  for (const Step& step : plan().steps) {
    switch (step.kind) {
      case StepKind::kAllocate:
        bound_.allocate(step.id, stream_);
        break;
      case StepKind::kDeallocate:
        bound_.deallocate(step.id, stream_);
        break;
      case StepKind::kCopyIn:
        if (copies_inputs_) copy(step);
        break;
      case StepKind::kCopyOut:
        if (is_last) copy(step);
        break;
      case StepKind::kRun: {
        if (!updating && bound_.node(step.id).outputs.empty()) {
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
  const Device* const first = bound_.devices().front()->device;
  for (const PlacedDevice* placed : bound_.devices()) {
    const bool has_gpu = first->kind() == DeviceKind::kCuda || placed->device->kind() == DeviceKind::kCuda;
    if (placed->device != first && has_gpu)
      return "a CUDA graph holds the work of one GPU, this plan spans more";
  }
  return {};
}

void Session::run_arena(int64_t steps) {
  for (const Step& step : plan().steps) {
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
  for (const Step& step : plan().steps) {
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
    std::unique_ptr<Recording>& whole = whole_steps_[static_cast<size_t>(bound_.set())];
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
  std::unique_ptr<Recording>& recording = part.recordings[static_cast<size_t>(bound_.set())];
  if (recording == nullptr) recording = record(part.nodes, 1);
  recording->launch(stream_);
}

std::unique_ptr<Recording> Session::record(const std::vector<int>& nodes, int64_t repeats) {
  Variables& variables = bound_.variables();
  // The CPU runs them on several threads, where one can fail beside others.
  const UpdatesBegin updates =
      device().kind() == DeviceKind::kCpu ? UpdatesBegin::kAfterAllOthers : UpdatesBegin::kWithTheirOperands;
  const std::vector<Task> tasks =
      make_tasks(bound_, nodes, updates, [this](int id, Stream stream) { run_node(id, stream); });
  return with_idle_memory(variables.allocator(), [&] {
    return collective_ == nullptr ? device().record(tasks, repeats)
                                  : collective_->record(device(), tasks, repeats);
  });
}

void Session::run(int64_t steps) {
  if (steps < 1) throw InvalidArgument(fmt::format("a run of {} steps", steps));
  if (bound_.has_input_sets()) bound_.use_set(0);
  copies_inputs_ = true;
  run_whole(steps);
}

void Session::use_arrived_set(int set, const Event& arrival) {
  if (!bound_.has_input_sets()) throw InvalidArgument("session: the plan has no doubled inputs");
  bound_.use_set(set);
  copies_inputs_ = false;
  device().wait(stream_, arrival);
}

void Session::run_on_set(int set, const Event& arrival) {
  use_arrived_set(set, arrival);
  run_whole(1);
}

std::unique_ptr<Event> Session::queue_on_set(int set, const Event& arrival) {
  use_arrived_set(set, arrival);
  std::unique_ptr<Event> end;
  guard_run([&] {
    if (has_arenas()) {
      queue_step();
    } else {
      run_dynamic(false);
    }
    end = device().record_event(stream_);
  });
  return end;
}

void Session::finish() {
  guard_run([&] { synchronize(); });
}

void Session::run_whole(int64_t steps) {
  guard_run([&] {
    if (has_arenas()) {
      run_arena(steps);
    } else {
      for (int64_t step = 1; step <= steps; ++step) run_dynamic(step == steps);
    }
    synchronize();
  });
}

void Session::guard_run(const std::function<void()>& work) {
  if (bound_.devices().size() > 1 && stream_ != Stream{}) {
    throw InvalidArgument("a session on several devices runs on their default streams");
  }
  device_takes_work_ =
      std::any_of(bound_.devices().begin(), bound_.devices().end(),
                  [&](const PlacedDevice* placed) { return placed->device->takes_work(stream_); });
  try {
    // The last one becomes the current GPU of this thread, which may have used another.
    for (size_t i = bound_.devices().size(); i-- > 0;) bound_.devices()[i]->device->initialise();
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
  bound_.deallocate_all(stream_);
}

const HostBuffer& Session::staging_of(int value, std::vector<Staging>& all) {
  for (Staging& staging : all) {
    if (staging.value == value) return staging.bytes;
  }
  throw InvalidArgument(fmt::format("{} is {} this plan", graph().value(value).name,
                                    &all == &inputs_ ? "not an input of" : "not fetched by"));
}

std::span<std::byte> Session::staging(const Value& value, DType dtype, std::vector<Staging>& all) {
  if (value.graph != &graph()) throw InvalidArgument("the value belongs to another graph");
  if (value.spec().dtype != dtype) {
    throw InvalidArgument(
        fmt::format("{} is {}, not {}", value.name(), to_string(value.spec()), to_string(dtype)));
  }
  const HostBuffer& host = staging_of(value.id, all);
  return {host.data(), host.size()};
}

}  // namespace headroom
