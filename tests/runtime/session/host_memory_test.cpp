// Steps that keep values in host memory between their uses: bits, time and failures, on devices whose clock
// and driver are the test's.
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "device/faulty/faulty_device.h"
#include "device/host/simulated_gpu.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/host_state.h"
#include "runtime/graph/optimizer.h"
#include "runtime/graph/placement.h"
#include "runtime/plan/frontier.h"
#include "tests/runtime/session/harness.h"
#include "tests/runtime/session/small_net.h"

namespace headroom {
namespace {

constexpr double kKernelUs = 10, kCopyBytesPerUs = 2000;
constexpr int64_t kHostBytes = int64_t{1} << 60;

// Layers whose values wait in the forward pass for the backward pass.
struct DeepNet {
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  Value x = graph->input("x", {DType::kF32, {64, 64}});
  Value rate = graph->input("rate", {DType::kF32, {}});
  Value step = graph->variable("step", {DType::kI32, {}}, zeros());
  Value w = graph->variable("w", {DType::kF32, {64, 64}}, glorot_uniform({64, 64}, 1));
  Value loss;

  explicit DeepNet(int layers = 12) {
    Value y = x;
    for (int i = 0; i < layers; ++i) y = gelu(matmul(y, w));
    loss = mean(y);
    const std::vector<Value> parameters = {w};
    add_updates(Sgd{}, parameters, gradients(loss, parameters), rate, step);
  }
  Targets targets() const { return {{loss}, true}; }
  void feed(Session& session) const {
    const std::vector<float> data = random_floats(x.shape().elements(), 5);
    std::copy(data.begin(), data.end(), session.input<float>(x).begin());
    session.input<float>(rate)[0] = 1e-2f;
  }
};

DeviceProfile slow_profile() {
  DeviceProfile profile = find_profile("h200");
  profile.kernel_us = kKernelUs;
  profile.copy_bytes_per_us = kCopyBytesPerUs;
  return profile;
}

// Solves for `percent` of the net's memory, as planned for that device.
StepPoint solve(const DeepNet& net, int percent) {
  const Targets targets = net.targets();
  const std::vector<int64_t> workspace = workspaces(*net.graph, 0);
  const std::vector<double> us(net.graph->nodes().size(), kKernelUs);
  Frontier solver(*net.graph, targets, {workspace, us}, {kCopyBytesPerUs, 0, kHostBytes});
  return solver.solve(solver.solve(kHostBytes).peak_bytes * percent / 100);
}

void apply(const StepPoint& solution, DeepNet& net) {
  apply(solution.schedule, *net.graph);
}

struct HostRun {
  uint64_t checksum = 0;
  double step_us = 0;  // on the clock of the device
};

HostRun run_with_host(const DeepNet& net, PlanMode mode = PlanMode::kPacked, bool own_stream = false) {
  SimulatedGpu gpu(slow_profile());
  gpu.streams().check_waits();
  const auto allocator = make_allocator({.name = "direct"}, gpu);
  Variables variables(*net.graph, gpu, *allocator);
  const Stream stream = own_stream ? gpu.streams().new_stream() : Stream{};
  HostRun run;
  {
    Session session(*net.graph, net.targets(), mode, variables);
    session.use_stream(stream);
    net.feed(session);
    session.run();  // the first time node by node
    const double before = gpu.streams().now_us();
    session.run();
    run.step_us = gpu.streams().now_us() - before;
    session.run(3);
  }
  run.checksum = variables.checksum(std::span(&net.w, 1));
  return run;
}

double copied_us(const Graph& graph) {
  double us = 0;
  for (const Node& node : graph.nodes()) {
    if (is_host_copy(graph, node))
      us += static_cast<double>(graph.value(node.outputs[0]).spec.bytes()) / kCopyBytesPerUs;
  }
  return us;
}

TEST(HostMemory, CopiesRunBesideTheNodesAndTheStepTakesNoLongerThanPlanned) {
  const DeepNet plain;
  const HostRun expected = run_with_host(plain);
  const double plain_us = solve(plain, 100).us;
  double before_us = plain_us;
  for (const int percent : {80, 60, 40}) {
    DeepNet net;
    const StepPoint solution = solve(net, percent);
    apply(solution, net);
    const double copied = copied_us(*net.graph);
    EXPECT_GT(copied, 0) << percent;
    const HostRun run = run_with_host(net);
    EXPECT_EQ(run.checksum, expected.checksum) << percent;
    const double more = run.step_us - expected.step_us;
    EXPECT_LE(more, solution.us - plain_us + 1e-6) << percent;
    EXPECT_LT(more, copied / 2) << percent << ": most of the copies are hidden";
    EXPECT_GE(solution.us, before_us) << percent;
    before_us = solution.us;
  }
}

TEST(HostMemory, EveryPlanAndStreamGivesTheSameBitsAndMissesNoWait) {
  const HostRun expected = run_with_host(DeepNet());
  for (const PlanMode mode : kPlanModes) {
    for (const bool own_stream : {false, true}) {
      DeepNet net;
      apply(solve(net, 50), net);
      EXPECT_EQ(run_with_host(net, mode, own_stream).checksum, expected.checksum) << to_string(mode);
    }
  }
}

// Allocations of the device and of the host, copies in, out, to the host and back, captures and launches.
TEST(HostMemory, EachCallThatFailsOnceLeavesWholeStepsAndAUsableSession) {
  constexpr int64_t kSteps = 4;
  DeepNet net(4);
  apply(solve(net, 50), net);
  ASSERT_GT(copied_us(*net.graph), 0);
  const auto train_with = [&](Device& device, const std::function<void(Session&, Variables&)>& run) {
    const auto allocator = make_allocator({.name = "direct"}, device);
    Variables variables(*net.graph, device, *allocator);
    Session session(*net.graph, net.targets(), PlanMode::kPacked, variables);
    net.feed(session);
    run(session, variables);
    return variables.checksum(std::span(&net.w, 1));
  };
  SimulatedGpu plain(find_profile("h200"));
  const uint64_t expected = train_with(plain, [&](Session& session, Variables&) { session.run(kSteps); });
  bool fired = true;
  int64_t call = 1, in_run = 0;
  for (; fired; ++call) {
    SimulatedGpu gpu(find_profile("h200"));
    gpu.initialize();
    FaultyDevice device(gpu);
    device.faults().arm({.failing_call = call});
    const auto run = [&](Session& session, Variables& variables) {
      try {
        session.run(kSteps);
      } catch (const DeviceError&) {
        ++in_run;
      } catch (const LibraryError&) {
        ++in_run;
      }
      fired = device.faults().calls() >= call;
      device.faults().arm({});
      const int64_t done = read<int32_t>(variables, net.step)[0];
      if (done < kSteps) session.run(kSteps - done);
    };
    uint64_t checksum = 0;
    try {
      checksum = train_with(device, run);
    } catch (const Error&) {  // from the session that was to be made
      const int64_t held = gpu.memory().info().process;
      EXPECT_EQ(held, find_profile("h200").kept_context_bytes()) << call;
      device.faults().arm({});
      checksum = train_with(device, run);
      fired = true;
    }
    ASSERT_EQ(checksum, expected) << "call " << call;
  }
  EXPECT_GT(call, 20);
  EXPECT_GT(in_run, 10);
}

TEST(HostMemory, AHostWithoutRoomIsADeviceErrorInOneLine) {
  SimulatedGpu gpu(find_profile("h200"));
  gpu.initialize();
  FaultyDevice device(gpu);
  const auto allocator = make_allocator({.name = "direct"}, device);
  const DeviceSet devices(device, *allocator);
  const PlacedDevice& host = devices.find(kHostPlace);
  EXPECT_EQ(host.device, &device);
  device.faults().arm({.failing_call = 1});
  try {
    host.allocator->allocate(kMiB);
    FAIL() << "the host had no room";
  } catch (const DeviceError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("--host-memory"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
  EXPECT_EQ(host.allocator->statistics().reserved.current, 0);
  device.faults().arm({});
  void* const block = host.allocator->allocate(kMiB);
  EXPECT_EQ(host.allocator->statistics().reserved.current, kMiB);
  EXPECT_EQ(allocator->statistics().reserved.current, 0) << "host memory is none of the device's";
  host.allocator->deallocate(block, kMiB);
  EXPECT_EQ(host.allocator->statistics().reserved.current, 0);
}

TEST(HostMemory, AnArenaOfTheHostGoesWithItsSession) {
  DeepNet net;
  apply(solve(net, 50), net);
  SimulatedGpu gpu(find_profile("h200"));
  const auto allocator = make_allocator({.name = "direct"}, gpu);
  const DeviceSet devices(gpu, *allocator);
  const Allocator& host = *devices.find(kHostPlace).allocator;
  Variables variables(*net.graph, devices);
  EXPECT_EQ(host.statistics().allocated.current, 0);
  {
    const auto kernels = std::make_shared<Kernels>(*net.graph, devices);
    Plan plan = make_plan(*net.graph, net.targets(), PlanMode::kPacked, kernels->workspace_bytes());
    const int64_t bytes = host_bytes_of(plan);
    EXPECT_GT(bytes, 0);
    Session session(*net.graph, std::move(plan), kernels, variables);
    EXPECT_EQ(host.statistics().allocated.current, bytes);
  }
  EXPECT_EQ(host.statistics().allocated.current, 0);
}

// Layers with a weight each, which Adam trains.
struct AdamNet {
  Graph graph;
  Value x = graph.input("x", {DType::kF32, {64, 64}});
  Value rate = graph.input("rate", {DType::kF32, {}});
  Value step = graph.variable("step", {DType::kI32, {}}, zeros());
  std::vector<Value> weights;
  Value loss;
  std::vector<int> states;

  AdamNet() {
    Value y = x;
    for (int i = 0; i < 4; ++i) {
      const NameScope scope(graph, "layer" + std::to_string(i));
      weights.push_back(graph.variable("w", {DType::kF32, {64, 64}}, glorot_uniform({64, 64}, 1)));
      y = gelu(matmul(y, weights.back()));
    }
    loss = mean(y);
    add_updates(Adam{}, weights, gradients(loss, weights), rate, step);
    states = find_movable_states(graph, std::vector<Value>{loss});
  }
  Targets targets() const { return {{loss}, true}; }
  void feed(Session& session) const {
    const std::vector<float> data = random_floats(x.shape().elements(), 5);
    std::copy(data.begin(), data.end(), session.input<float>(x).begin());
    session.input<float>(rate)[0] = 1e-2f;
  }
  std::vector<Value> all() {
    std::vector<Value> values = weights;
    for (const int id : states) values.push_back({&graph, id});
    return values;
  }
};

struct StateRun {
  uint64_t checksum = 0;                     // checksum of weights and states
  int64_t device_bytes = 0, host_bytes = 0;  // bytes of variables
};

StateRun run_with_states(AdamNet& net, PlanMode mode, bool own_stream) {
  SimulatedGpu gpu(find_profile("h200"));
  gpu.streams().check_waits();
  const auto allocator = make_allocator({.name = "direct"}, gpu);
  const DeviceSet devices(gpu, *allocator);
  StateRun run;
  {
    Variables variables(net.graph, devices);
    run.device_bytes = allocator->statistics().allocated.current;
    run.host_bytes = devices.find(kHostPlace).allocator->statistics().allocated.current;
    Session session(net.graph, net.targets(), mode, variables);
    session.use_stream(own_stream ? gpu.streams().new_stream() : Stream{});
    net.feed(session);
    session.run();
    session.run(5);
    run.checksum = variables.checksum(net.all());
  }
  EXPECT_EQ(devices.find(kHostPlace).allocator->statistics().allocated.current, 0);
  return run;
}

TEST(HostState, EveryPlanAndStreamGivesTheSameWeightsAndStatesAndMissesNoWait) {
  AdamNet plain;
  const StateRun expected = run_with_states(plain, PlanMode::kPacked, false);
  EXPECT_EQ(expected.host_bytes, 0);
  for (const size_t count : {size_t{3}, plain.states.size()}) {
    AdamNet net;
    put_on_host(net.graph, std::span(net.states).first(count));
    const auto bytes = static_cast<int64_t>(count) * net.weights[0].spec().bytes();
    for (const PlanMode mode : kPlanModes) {
      for (const bool own_stream : {false, true}) {
        const StateRun run = run_with_states(net, mode, own_stream);
        EXPECT_EQ(run.checksum, expected.checksum) << to_string(mode) << count;
        EXPECT_EQ(run.host_bytes, bytes);
        EXPECT_EQ(run.device_bytes, expected.device_bytes - bytes);
      }
    }
  }
}

TEST(HostState, IsWrittenAndReadAsOtherVariablesAre) {
  AdamNet net;
  put_on_host(net.graph, net.states);
  SimulatedGpu gpu(find_profile("h200"));
  const auto allocator = make_allocator({.name = "direct"}, gpu);
  Variables variables(net.graph, gpu, *allocator);
  const Value state = net.all().back();
  EXPECT_EQ(read<float>(variables, state), std::vector<float>(64 * 64, 0.0f)) << "its initial value";
  const std::vector<float> values = random_floats(64 * 64, 7);
  write(variables, state, values);
  EXPECT_EQ(read<float>(variables, state), values);
}

TEST(HostState, AHostWithoutRoomLeavesNothingAllocated) {
  AdamNet net;
  put_on_host(net.graph, net.states);
  int64_t failures = 0;
  for (int64_t call = 1;; ++call) {
    SimulatedGpu gpu(find_profile("h200"));
    gpu.initialize();
    FaultyDevice device(gpu);
    const auto allocator = make_allocator({.name = "direct"}, device);
    const DeviceSet devices(device, *allocator);
    device.faults().arm({.failing_call = call});
    try {
      const Variables variables(net.graph, devices);
      break;
    } catch (const Error&) {
      ++failures;
    }
    EXPECT_EQ(allocator->statistics().allocated.current, 0) << call;
    EXPECT_EQ(devices.find(kHostPlace).allocator->statistics().allocated.current, 0) << call;
  }
  EXPECT_GT(failures, 8);
}

}  // namespace
}  // namespace headroom
