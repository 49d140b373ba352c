// A2, A11 and A12: what a pool takes of the laptop's GPU when it grows, when it is limited, and when memory
// is freed.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "answers/lower.h"
#include "answers/play.h"
#include "answers/solve.h"
#include "base/bytes.h"
#include "base/edge.h"
#include "examples/models/mnist/conv_net.h"
#include "examples/models/mnist/training_graph.h"
#include "ops/ops.h"
#include "runtime/session/start_op.h"
#include "tools/repro/card.h"
#include "tools/repro/runs.h"

namespace headroom::repro {
namespace {

// The tutorial's net.
int64_t count_parameters() {
  Graph graph;
  const ConvNet net(graph, 1);
  int64_t count = 0;
  for (const Value& parameter : net.parameters()) {
    count += graph.value(parameter.id).spec.shape.elements();
  }
  return count;
}
Program tutorial(const RuntimeOptions& options) {
  const TrainSettings settings = settings_of_tutorial();
  return training_programs(settings, 4 * settings.batch, settings.batch, options).front();
}

// Runs a training step as TensorFlow's executor asks for memory: the results of an op, in the place of an
// operand that ends there if one has that size, then the workspace of its kernel.
class TensorflowStep {
 public:
  TensorflowStep(Runtime& runtime, const Program& program, int64_t workspace_bytes)
      : graph_(*program.graph), device_(runtime.device()), pool_(runtime.allocator()) {
    device_.initialize();
    for (const int variable : graph_.variables()) allocate(variable);
    const NeededNodes needed = find_needed_nodes(graph_, program.targets.front());
    std::vector<int> nodes = needed.pure;
    nodes.insert(nodes.end(), needed.updates.begin(), needed.updates.end());
    for (const int node : nodes) {
      for (const int input : graph_.node(node).inputs) last_use_[input] = node;
    }
    for (const int node : nodes) run(node, workspace_bytes);
  }
  ~TensorflowStep() {
    for (const auto& [value, block] : blocks_) pool_.deallocate(block, bytes_of(value));
  }
  TensorflowStep(const TensorflowStep&) = delete;
  TensorflowStep& operator=(const TensorflowStep&) = delete;

 private:
  int64_t bytes_of(int value) const { return graph_.value(value).spec.bytes(); }
  void allocate(int value) { blocks_[value] = pool_.allocate(bytes_of(value)); }
  bool ends_at(int value, int node) const {
    return graph_.value(value).kind != ValueKind::kVariable && last_use_.at(value) == node;
  }

  void run(int node, int64_t workspace_bytes) {
    const Node& each = graph_.node(node);
    start_node(graph_, node, device_, pool_);
    for (const int input : each.inputs) {
      if (!blocks_.contains(input)) allocate(input);  // the step's images
    }
    const Library library = traits_of(each.op).library;
    for (const int output : each.outputs) {
      const auto forwarded = std::ranges::find_if(each.inputs, [&](int input) {
        return library == Library::kNone && blocks_.contains(input) && ends_at(input, node) &&
               bytes_of(input) == bytes_of(output);
      });
      if (forwarded == each.inputs.end()) {
        allocate(output);
      } else {
        blocks_[output] = blocks_.at(*forwarded);
        blocks_.erase(*forwarded);
      }
    }
    if (library == Library::kDnn) pool_.deallocate(pool_.allocate(workspace_bytes), workspace_bytes);
    for (const int input : each.inputs) {
      if (blocks_.contains(input) && ends_at(input, node)) {
        pool_.deallocate(blocks_.at(input), bytes_of(input));
        blocks_.erase(input);
      }
    }
  }

  const Graph& graph_;
  Device& device_;
  Allocator& pool_;
  std::map<int, int> last_use_;  // by value
  std::map<int, void*> blocks_;  // by value
};

// Plays a step of the net, planned node by node, to a pool with that limit.
class PlannedNet {
 public:
  explicit PlannedNet(const RuntimeOptions& options) : options_(options), program_(tutorial(options)) {
    const std::vector<Program> programs = planned({program_}, PlanMode::kDynamic);
    traced_ = lower(programs, options_);
  }

  Prediction play(int64_t limit_bytes) const {
    RuntimeOptions options = options_;
    options.strategy = "hard-limit";
    options.limit_bytes = limit_bytes;
    return headroom::play(traced_, setup_of(options));
  }

  // The least limit with which it trains, to 64 KiB.
  int64_t least_limit() const {
    constexpr int64_t kUnit = 64 * kKiB;
    SearchWork work;
    EdgeSearch search(work, [&](int64_t units) { return EdgeTrial{.fits = play(units * kUnit).fits}; });
    return search.between(kGiB / kUnit, 1).fitting * kUnit;
  }

  // Plans the same step for a budget, at the least cost in time.
  Solver solver() const {
    RuntimeOptions options = options_;
    options.strategy = "direct";
    options.plan = PlanMode::kPacked;
    return {program_, setup_of(options)};
  }

 private:
  const RuntimeOptions options_;
  const Program program_;
  Traced traced_;
};

}  // namespace

// TensorFlow's pool grows by regions that double: 266 MiB, the report's 697 without the 431 of context,
// libraries and kernels, are regions of 2, 8 and 256. The first convolution's result, 5.28 MiB, takes the one
// of 8. No tensor of the net needs the last one, so that was a workspace of cuDNN, of more than 128 MiB; the
// report does not have its size.
Measured run_a2(const Stage& stage) {
  RuntimeOptions options = stage.card(kLaptop);
  options.strategy = "allow-growth";
  Measured measured;
  measured.add("parameters", count_parameters());
  if (stage.is_sim()) {
    const Program program = tutorial(options);
    for (const int64_t mib : {192, 130, 224}) {
      Runtime runtime(options);
      const TensorflowStep step(runtime, program, mib * kMiB);
      const MemoryInfo info = runtime.memory_info();
      const int64_t reserved = runtime.allocator().statistics().reserved.current;
      if (mib != 192) {
        measured.add(fmt::format("process_with_workspaces_of_{}_mib_bytes", mib), info.process);
        continue;
      }
      measured.add("outcome", "ok");
      measured.add("overhead_bytes", info.process - reserved);
      measured.add("reserved_bytes", reserved);
      measured.add("process_bytes", info.process);
      measured.add("device_bytes", info.total - info.free);
    }
  }
  Runtime runtime(options);
  const TrainResult ours = train_four_steps(settings_of_tutorial(), runtime);
  if (!stage.is_sim()) measured.add("outcome", ours.outcome);
  measured.add("our_reserved_bytes", ours.peak_reserved_bytes);
  measured.add("our_process_bytes", ours.peak_process_bytes);
  return measured;
}

Measured run_a11(const Stage& stage) {
  const PlannedNet net(stage.card(kLaptop));
  const Solver solver = net.solver();
  const int64_t overhead = find_profile(kLaptop).overhead_bytes(), least = net.least_limit();
  const int64_t least_planned = solver.solve_least().least_memory_bytes - overhead;
  const auto planned = [&](int64_t bytes) { return solver.solve(overhead + bytes, SplitBatch::kCheaper); };
  const auto note = [](bool fits) { return fits ? "ok" : "out_of_memory"; };
  const double whole_us = solver.us_without();
  Measured measured;
  measured.add("limit_of_the_working_set", note(net.play(least).fits));
  measured.add("limit_of_a_mib_less", note(net.play(least - kMiB).fits));
  measured.add("driver_calls_at_either_limit",
               net.play(least).driver_time_us == net.play(kGiB).driver_time_us ? "the same" : "differ");
  const MemorySolution below = planned(least - 6 * kMiB);
  measured.add("planned_for_6_mib_less", note(below.fits));
  measured.add("it_takes", below.us > whole_us ? "longer" : "as long");
  measured.add("planned_for_less_than_its_least", note(planned(least_planned - 4 * kMiB).fits));
  measured.add("working_set_bytes", least);
  measured.add("least_planned_bytes", least_planned);
  measured.lines.emplace_back("limit on the pool    the pool alone    planned for the limit");
  for (const int64_t mib : {1024, 64, 32, 20, 16, 14, 12, 11, 10, 9, 8}) {
    const MemorySolution solution = planned(mib * kMiB);
    measured.lines.push_back(fmt::format(
        "{:>9} MiB        {:<14}    {}", mib, net.play(mib * kMiB).fits ? "trains" : "out of memory",
        solution.fits ? fmt::format("{:.2f} ms a step, {:+.1f} %", solution.us / 1e3,
                                    100 * (solution.us / whole_us - 1))
                      : "out of memory"));
  }
  return measured;
}

Measured run_a12(const Stage& stage) {
  Card card(stage, kLaptop, stage.fixed ? "mapped" : "allow-growth");
  Measured measured;
  Card::Tensor x = card.randn({100, 512, 512});
  measured.add("with_a_large_tensor_bytes", card.above_context_bytes());
  x = {};
  measured.add("without_it_bytes", card.above_context_bytes());
  x = card.randn({512, 512});
  measured.add("with_a_small_one_bytes", card.above_context_bytes());
  card.allocator().trim();
  measured.add("and_idle_memory_given_back_bytes", card.above_context_bytes());
  x = {};
  card.allocator().trim();
  measured.add("without_either_bytes", card.above_context_bytes());
  return measured;
}

}  // namespace headroom::repro
