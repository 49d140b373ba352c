#include "answers/lower.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "allocators/observer.h"
#include "allocators/strategies/direct_allocator.h"
#include "allocators/trace_recorder.h"
#include "answers/memory_solution.h"
#include "device/host/simulated_gpu.h"
#include "runtime/graph/categories.h"
#include "runtime/graph/placement.h"
#include "runtime/session/start_op.h"
#include "runtime/session/walk.h"
#include "trace/trace_builder.h"

namespace headroom {
namespace {

constexpr int64_t kLargestRecordedBytes = int64_t{1} << 60;  // sums of it do not overflow

// A device without bytes and without end, and the trace of what it is asked for.
struct Recorded {
  explicit Recorded(std::string used) : name(std::move(used)) {}

  std::string name;  // in the graph
  SimulatedGpu device{cpu_profile(kLargestRecordedBytes), 0, Backing::kNone};
  DirectAllocator allocator{device, "direct", std::nullopt};
  TraceBuilder trace{"", "plan of a graph"};
  std::function<void(const AllocatorEvent&)> record = trace_recorder(trace);
  int64_t events = 0;
  std::array<std::array<bool, std::variant_size_v<Op>>, 3> started = {};  // by Library and op
};

// The walks of one replica.
class Lowering final : PlanWork {
 public:
  Lowering(const Program& program, const ReplicaDevices& on)
      : shared_(program.graph), graph_(*program.graph), categories_(categorize(graph_)) {
    std::vector<std::string> names = devices_of(graph_);
    std::erase(names, kHostPlace);  // the set has it
    for (std::string& name : names) watch(devices_.emplace_back(std::move(name)));
    // A graph of one of several replicas counts devices from the replica's first.
    const DeviceName first = on.count ? DeviceName{DeviceType::kGpu, 0} : on.first;
    Variables variables(graph_, placed(first.text()), Variables::Contents::kNone);
    for (const int id : graph_.variables()) {
      if (graph_.value(id).device == kHostPlace) continue;
      variable_bytes_[position_of(graph_.value(id).device)] += Variables::block_bytes(graph_.value(id));
    }
    std::vector<const Plan*> plans;
    for (const Plan& plan : *program.plans) plans.push_back(&plan);
    const SharedArenas arenas(plans, variables);
    std::deque<PlanMemory> memory;
    for (const Plan* plan : plans) memory.emplace_back(*plan, variables, &arenas);
    for (PlanMemory& of_plan : memory) {
      Walk walk(of_plan);
      walk_ = &walk;
      steps_.push_back(turns_.size());
      mark(StepPhase::kForward);
      walk.run(1, true, {}, *this);
    }
    for (Recorded& device : devices_) device.allocator.set_observer({});
  }

  // Adds the traces and their turns; those of steps to `repeated`, whose steps begin at `begins`.
  void add_to(int rank, const ReplicaDevices& on, const std::vector<std::shared_ptr<const Trace>>& traces,
              Traced& program, std::vector<Turn>& repeated, std::vector<size_t>& begins) const {
    const size_t first = program.devices.size(), setup = steps_.front();
    for (size_t i = 0; i < devices_.size(); ++i) {
      const std::string& name = devices_[i].name;
      program.devices.push_back(
          {on.find(name).text(), traces[i], libraries_of(graph_, name), variable_bytes_[i], rank});
    }
    for (const size_t begin : steps_) begins.push_back(repeated.size() + begin - setup);
    for (size_t i = 0; i < turns_.size(); ++i) {
      Turn turn = turns_[i];
      turn.device += first;
      (i < setup ? program.turns : repeated).push_back(turn);
    }
  }
  std::vector<std::shared_ptr<const Trace>> take_traces() {
    std::vector<std::shared_ptr<const Trace>> traces;
    for (Recorded& device : devices_) {
      traces.push_back(std::make_shared<const Trace>(device.trace.take()));
    }
    return traces;
  }

 private:
  void watch(Recorded& device) {
    using Kind = AllocatorEvent::Kind;
    variable_bytes_.push_back(0);
    device.allocator.set_observer([this, &device, at = devices_.size() - 1](const AllocatorEvent& event) {
      const bool is_request = event.kind == Kind::kAllocate || event.kind == Kind::kDeallocate;
      if (!is_request && event.kind != Kind::kPart) return;
      device.record(event);
      if (!is_request) return;
      turn_of(at).events = ++device.events;
    });
  }
  DeviceSet placed(const std::string& first) {
    std::vector<PlacedDevice> all;
    for (Recorded& device : devices_) {
      all.push_back(
          {device.name.empty() ? first : device.name, &device.device, &device.allocator, device.name});
    }
    return DeviceSet(std::move(all));
  }
  size_t position_of(std::string_view name) const {
    const auto found =
        std::ranges::find_if(devices_, [&](const Recorded& device) { return device.name == name; });
    return static_cast<size_t>(found - devices_.begin());
  }

  // A walk starts the libraries of a group right before it runs, and those of all updates before the first of
  // them. Only what a device has not started before takes memory.
  void start(std::span<const int> nodes) {
    for (const int id : nodes) {
      const Node& node = graph_.node(id);
      if (std::holds_alternative<CopyToDevice>(node.op)) continue;
      const size_t at = position_of(node.device);
      Recorded& device = devices_[at];
      bool& is_started = device.started[static_cast<size_t>(library_of(node.op))][node.op.index()];
      if (std::exchange(is_started, true)) continue;
      turn_of(at).start = [graph = shared_, id](Device& on, Allocator& allocator) {
        start_node(*graph, id, on, allocator);
      };
    }
  }
  void run_group(int group) override {
    const Walk::Group& nodes = walk_->groups()[static_cast<size_t>(group)];
    if (nodes.is_update) {
      for (const Walk::Group& update : walk_->groups()) {
        if (update.is_update) start(update.nodes);
      }
    } else {
      start(nodes.nodes);
    }
    const Node& node = graph_.node(nodes.nodes.front());
    const bool is_backward =
        !node.outputs.empty() &&
        categories_[static_cast<size_t>(node.outputs.front())] == MemoryCategory::kGradients;
    const StepPhase phase = nodes.is_update ? StepPhase::kOptimizer
                            : is_backward   ? StepPhase::kBackward
                                            : StepPhase::kForward;
    if (phase != phase_) mark(phase);
  }
  void mark(StepPhase phase) {
    phase_ = phase;
    for (Recorded& device : devices_) device.trace.mark(std::ssize(steps_), phase, 0);
  }

  // The turn of the device, in which nothing has been started yet.
  Turn& turn_of(size_t device) {
    const size_t begin = steps_.empty() ? 0 : steps_.back();
    const bool goes_on = turns_.size() > begin && turns_.back().device == device && !turns_.back().start;
    return goes_on ? turns_.back() : turns_.emplace_back(Turn{device, devices_[device].events});
  }

  const std::shared_ptr<const Graph> shared_;
  const Graph& graph_;
  const std::vector<MemoryCategory> categories_;  // by value id
  std::deque<Recorded> devices_;
  std::vector<int64_t> variable_bytes_;  // by device
  std::vector<Turn> turns_;
  std::vector<size_t> steps_;  // the turns at which they begin
  const Walk* walk_ = nullptr;
  StepPhase phase_ = StepPhase::kSetup;
};

// The copies between devices in a step of the first session.
void count_copies(const Program& of, Traced& program) {
  const Graph& graph = *of.graph;
  for (const Step& step : of.plans->front().steps) {
    if (step.kind != StepKind::kRun || !std::holds_alternative<CopyToDevice>(graph.node(step.id).op) ||
        is_host_copy(graph, graph.node(step.id)))
      continue;
    ++program.copies;
    program.copied_bytes += graph.value(graph.node(step.id).outputs[0]).spec.bytes();
  }
}

// Programs of one graph have the same plans; they share its traces.
Traced lower_all(std::span<const Program> ranks, std::span<const ReplicaDevices> devices) {
  Traced program;
  program.starts_libraries = true;
  std::vector<Turn> repeated;
  std::vector<size_t> begins;
  std::optional<Lowering> lowered;
  std::vector<std::shared_ptr<const Trace>> traces;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (rank == 0 || ranks[rank].graph != ranks[rank - 1].graph) {
      lowered.emplace(ranks[rank], devices[rank]);
      traces = lowered->take_traces();
    }
    lowered->add_to(static_cast<int>(rank), devices[rank], traces, program, repeated, begins);
    count_copies(ranks[rank], program);
    const MemorySolution* const memory = ranks[rank].memory.get();
    if (memory != nullptr && !memory->fits && !program.refusal)
      program.refusal.emplace(memory->memory_bytes, memory->least_memory_bytes);
  }
  for (const size_t begin : begins) program.steps.push_back(program.turns.size() + begin);
  program.turns.insert(program.turns.end(), repeated.begin(), repeated.end());
  return program;
}

}  // namespace

Traced lower(const Program& program, const ReplicaDevices& devices) {
  return lower_all({&program, 1}, {&devices, 1});
}

Traced lower(std::span<const Program> ranks, const RuntimeOptions& options) {
  std::vector<ReplicaDevices> devices;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    devices.push_back(devices_of_replica(options, static_cast<int>(ranks.size()), static_cast<int>(rank)));
  }
  return lower_all(ranks, devices);
}

}  // namespace headroom
