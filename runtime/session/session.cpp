#include "runtime/session/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "runtime/session/capture_tasks.h"
#include "runtime/session/start_op.h"

namespace headroom {
namespace {

// The maximum number of steps, and of nodes, in one capture. On an H200 a launch of its own costs a step of
// 12 tiny nodes 1.25 us; among 16 steps it costs 0.05 us, among 32 half of that. But each node takes 7 us to
// capture and up to 30 KiB of the driver's memory. So a step of many nodes, which takes milliseconds, is not
// captured as a whole; its groups are.
constexpr int64_t kMaxSteps = 16, kMaxNodes = 512;

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

Session::Session(const Graph& graph, Plan plan, std::shared_ptr<const Kernels> kernels, Variables& variables,
                 const SharedArenas* arenas)
    : bound_(graph, std::move(plan), std::move(kernels), variables, arenas), walk_(bound_.memory()) {
  for (const Step& step : bound_.plan().steps) {
    if (step.kind != StepKind::kCopyIn && step.kind != StepKind::kCopyOut) continue;
    std::vector<Staging>& all = step.kind == StepKind::kCopyIn ? inputs_ : outputs_;
    DeviceMemory& memory = bound_.home_of(step.id).device->memory();
    all.push_back({step.id, HostBuffer(memory, graph.value(step.id).spec.bytes())});
  }
  const bool captures = has_arena(bound_.plan().mode) && not_captured_because().empty();
  int64_t nodes = 0;
  for (const Walk::Group& group : walk_.groups()) {
    GroupState& state = groups_.emplace_back();
    state.can_be_captured = captures;
    nodes += static_cast<int64_t>(group.nodes.size());
    for (const int id : group.nodes) {
      DeviceCollective* const collective = bound_.node(id).kernel->collective();
      if (collective == nullptr) continue;
      collective_ = collective;
      state.can_be_captured = state.can_be_captured && collective->can_be_captured();
    }
  }
  max_of_many_ = std::clamp<int64_t>(kMaxNodes / std::max<int64_t>(1, nodes), 0, kMaxSteps);
}

void Session::copy_in(int value) {
  const HostBuffer& host = staging_of(value, inputs_);
  if (host.empty()) return;
  bound_.home_of(value).device->memory().copy_to_device(bound_.memory().address_of(value), host.data(),
                                                        static_cast<int64_t>(host.size()), stream_);
}

void Session::copy_out(int value) {
  const HostBuffer& host = staging_of(value, outputs_);
  if (host.empty()) return;
  bound_.home_of(value).device->memory().copy_to_host(host.data(), bound_.memory().address_of(value),
                                                      static_cast<int64_t>(host.size()), stream_);
}

void Session::run_node(int id, Stream stream) {
  const BoundNode& bound = bound_.node(id);
  Device& device = *bound.on->device;
  // Kernels are launched on the current GPU of the thread.
  if (has_several_devices()) device.initialize();
  if (device_takes_work_ && !bound.queues_itself) return device.streams().queue(stream, bound_.work_of(id));
  bound.run(stream);
}

// Host memory belongs to its device.
bool Session::has_several_devices() const {
  const std::vector<const PlacedDevice*>& all = bound_.devices();
  return std::ranges::any_of(
      all, [&](const PlacedDevice* placed) { return placed->device != all.front()->device; });
}

void Session::synchronize() {
  for (const PlacedDevice* placed : bound_.devices()) placed->device->streams().synchronize(stream_);
}

void Session::wait_before_updates() {
  synchronize();
}

std::string_view Session::not_captured_because() const {
  const bool call_tasks = device().captures().call_tasks();
  const bool are_of_one_kind = std::ranges::all_of(bound_.devices(), [&](const PlacedDevice* placed) {
    return placed->device->captures().call_tasks() == call_tasks;
  });
  return are_of_one_kind ? "" : "a CUDA graph holds the work of GPUs, and this plan has some on the CPU";
}

// Runs node by node the first time, because kernels load code at their first launch; a capture cannot.
void Session::run_group(int group) {
  const std::span<const int> nodes = walk_.groups()[static_cast<size_t>(group)].nodes;
  GroupState& state = groups_[static_cast<size_t>(group)];
  if (!state.is_ready()) {
    for (const int id : nodes) run_node(id, stream_);
    state.has_run = true;
    return;
  }
  std::unique_ptr<Capture>& one = state.captures[static_cast<size_t>(bound_.memory().set())];
  if (one == nullptr) one = capture(nodes, 1);
  one->launch(stream_);
}

int64_t Session::replay(int64_t most) {
  const bool is_ready =
      std::ranges::all_of(groups_, [](const GroupState& state) { return state.is_ready(); });
  if (!is_ready || groups_.empty() || max_of_many_ == 0) return 0;
  const int64_t wanted = std::min(most, max_of_many_);
  if (!many_is_queued_ && wanted > std::max<int64_t>(1, steps_of_many_)) {
    many_.reset();
    steps_of_many_ = 0;
    many_ = capture_steps(wanted);
    steps_of_many_ = wanted;
  }
  if (many_ != nullptr && most >= steps_of_many_) {
    many_->launch(stream_);
    many_is_queued_ = true;
    return steps_of_many_;
  }
  std::unique_ptr<Capture>& whole = whole_steps_[static_cast<size_t>(bound_.memory().set())];
  if (whole == nullptr) whole = capture_steps(1);
  whole->launch(stream_);
  return 1;
}

std::unique_ptr<Capture> Session::capture_steps(int64_t steps) {
  std::vector<int> nodes;
  for (const Walk::Group& group : walk_.groups()) {
    nodes.insert(nodes.end(), group.nodes.begin(), group.nodes.end());
  }
  return capture(nodes, steps);
}

std::unique_ptr<Capture> Session::capture(std::span<const int> nodes, int64_t repeats) {
  // Tasks that a launch calls may fail, and concurrently with others if several threads call them.
  const UpdatesBegin updates =
      device().captures().call_tasks() ? UpdatesBegin::kAfterAllOthers : UpdatesBegin::kWithTheirOperands;
  const std::vector<Task> tasks =
      make_tasks(bound_, nodes, updates, [this](int id, Stream stream) { run_node(id, stream); });
  return with_idle_memory(bound_.variables().allocator(), [&] {
    return collective_ == nullptr ? device().captures().capture(tasks, repeats)
                                  : collective_->capture(device(), tasks, repeats);
  });
}

void Session::run(int64_t steps) {
  if (steps < 1) throw InvalidArgument(fmt::format("a run of {} steps", steps));
  if (bound_.memory().has_input_sets()) bound_.memory().use_set(0);
  run_steps(steps, true);
}

void Session::run_again(int64_t steps) {
  if (steps < 1) throw InvalidArgument(fmt::format("a run of {} steps", steps));
  const bool has_run = !groups_.empty() && groups_.front().has_run;
  run_steps(steps, !has_run || !has_arena(bound_.plan().mode));
}

void Session::use_arrived_set(int set, const Event& arrival) {
  if (!bound_.memory().has_input_sets()) throw InvalidArgument("session: the plan has no doubled inputs");
  bound_.memory().use_set(set);
  device().streams().wait(stream_, arrival);
}

void Session::run_on_set(int set, const Event& arrival) {
  use_arrived_set(set, arrival);
  run_steps(1, false);
}

// Not a std::function: it would allocate on every run.
template <typename Work>
void Session::guard_run(const Work& work) {
  if (has_several_devices() && stream_ != Stream{}) {
    throw InvalidArgument("a session on several devices runs on their default streams");
  }
  device_takes_work_ = std::ranges::any_of(bound_.devices(), [&](const PlacedDevice* placed) {
    return placed->device->streams().takes_work(stream_);
  });
  try {
    // The last one becomes the current GPU of this thread, which may have used another.
    for (size_t i = bound_.devices().size(); i-- > 0;) bound_.devices()[i]->device->initialize();
    work();
  } catch (...) {
    clean_up();
    throw;
  }
}

std::unique_ptr<Event> Session::queue_on_set(int set, const Event& arrival) {
  use_arrived_set(set, arrival);
  std::unique_ptr<Event> end;
  guard_run([&] {
    walk_.run_inner_step(stream_, *this);
    end = device().streams().record_event(stream_);
  });
  return end;
}

void Session::finish() {
  guard_run([&] { synchronize(); });
}

void Session::run_steps(int64_t steps, bool copies_in) {
  guard_run([&] {
    many_is_queued_ = false;
    walk_.run(steps, copies_in, stream_, *this);
    synchronize();
  });
}

// After an error no work of the run continues, and nothing stays allocated.
void Session::clean_up() noexcept {
  try {
    synchronize();
  } catch (const Error&) {  // the caller gets the first one
  }
  bound_.memory().deallocate_all(stream_);
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
