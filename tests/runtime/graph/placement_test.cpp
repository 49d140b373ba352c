// Tests graphs on several devices: the placement of nodes and copies, and results with the bits of one
// device.
#include "runtime/graph/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "answers/lower.h"
#include "answers/play.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "runtime/app/place.h"
#include "runtime/graph/fuse.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "runtime/session/capture_tasks.h"
#include "tests/runtime/session/harness.h"

namespace headroom {
namespace {

const DeviceName kGpu0{DeviceType::kGpu, 0}, kGpu1{DeviceType::kGpu, 1}, kCpu0{DeviceType::kCpu, 0};
const DeviceName kThree[] = {kGpu0, kGpu1, kCpu0};
constexpr PlacementSettings kSilent{.allow_copies = true}, kSoft{.allow_soft_placement = true};

std::string refusal_to_place(const auto& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing thrown";
}

size_t count_copies(const Graph& graph) {
  return static_cast<size_t>(std::count_if(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    return std::holds_alternative<CopyToDevice>(node.op);
  }));
}

const std::string& device_of(const Value& value) {
  return value.graph->value(value.id).device;
}

const TensorSpec kVector{DType::kF32, {64}};

TEST(Placement, TheInnermostScopeCountsAndWithoutOneANodeRunsWhereItsOperandsLive) {
  Graph graph;
  const Value a = graph.variable("a", kVector, ones());
  const Value b = with_device(graph, "gpu:1", [&] {
    const Value outer = graph.variable("b", kVector, ones());
    const DeviceScope inner(graph, "/CPU:0");
    EXPECT_EQ(device_of(graph.variable("c", kVector, ones())), "/device:CPU:0");
    EXPECT_EQ(device_of(with_device(graph, "", [&] { return relu(outer); })), "");
    return outer;
  });
  EXPECT_EQ(device_of(a), "");
  EXPECT_EQ(device_of(b), "/device:GPU:1");
  EXPECT_EQ(device_of(relu(b)), "/device:GPU:1");
  EXPECT_EQ(device_of(add(a, b)), "") << "operands that disagree leave the default device";
  EXPECT_THROW(DeviceScope(graph, "/TPU:0"), InvalidArgument);
}

TEST(Placement, ScopesOfNamesGoToTheirDevicesWithTheirGradientsAndOptimizerStates) {
  Graph graph;
  const std::vector<ScopeOnDevice> scopes = parse_scopes_on_devices("second=/GPU:1,second/inner=cpu");
  put_scopes_on_devices(graph, scopes);
  const Value x = graph.variable("net/second_too", kVector, ones());
  const NameScope net(graph, "net");
  const NameScope second(graph, "second");
  const Value w = graph.variable("w", kVector, ones());
  const Value inner = graph.variable("inner/w", kVector, ones());
  const Value y = mul(x, w);
  EXPECT_EQ(device_of(x), "");
  EXPECT_EQ(device_of(w), "/device:GPU:1");
  EXPECT_EQ(device_of(y), "/device:GPU:1");
  EXPECT_EQ(device_of(inner), "/device:CPU:0");
  EXPECT_EQ(device_of(with_device(graph, "", [&] { return relu(w); })), "") << "a DeviceScope counts more";
  const std::vector<Value> gradient = gradients(sum(y), std::vector<Value>{w});
  EXPECT_EQ(device_of(gradient[0]), "/device:GPU:1");
  EXPECT_NO_THROW(require_scopes(graph, scopes));
  EXPECT_THROW(require_scopes(graph, parse_scopes_on_devices("third=/GPU:1")), InvalidArgument);
  for (const char* wrong : {"second", "=/GPU:1", "second=/TPU:0", ",", "second=", "a=cpu,a=/GPU:1"}) {
    EXPECT_THROW(parse_scopes_on_devices(wrong), InvalidArgument) << wrong;
  }
}

TEST(Placement, AGraphWithoutDeviceNamesIsUnchanged) {
  Graph graph;
  const Value x = graph.variable("x", kVector, ones());
  const Value y = relu(x);
  place(graph, kThree, {});
  EXPECT_EQ(device_of(y), "");
  EXPECT_EQ(graph.nodes().size(), 1u);
  const std::vector<int64_t> none = {0};
  const Plan plan = make_plan(graph, {{y}}, PlanMode::kPacked, none);
  ASSERT_EQ(plan.devices.size(), 1u);
  EXPECT_EQ(plan.devices[0].peak_bytes, plan.peak_bytes);
}

TEST(Placement, TheDefaultDevicesOwnNameIsTheDefaultDevice) {
  Graph graph;
  const Value x = graph.variable("x", kVector, ones());
  const Value y = with_device(graph, "/GPU:0", [&] { return relu(x); });
  place(graph, kThree, {});
  EXPECT_EQ(device_of(y), "");
}

TEST(Placement, OperandsOnTwoDevicesAreAnErrorInPyTorchsWords) {
  Graph graph;
  const Value a = graph.variable("a", kVector, ones());
  const Value b = with_device(graph, "/GPU:1", [&] { return graph.variable("b", kVector, ones()); });
  add(a, b);
  const std::string message = refusal_to_place([&] { place(graph, kThree, {}); });
  EXPECT_TRUE(
      message.starts_with("Expected all tensors to be on the same device, but found at least two "
                          "devices, /device:GPU:0 and /device:GPU:1!"))
      << message;
  EXPECT_NE(message.find("placement_test.cpp:"), std::string::npos) << message;
  const std::vector<int64_t> none = {0};
  EXPECT_THROW(make_plan(graph, {}, PlanMode::kDynamic, none), InvalidArgument) << "nor is it planned";
}

TEST(Placement, AnExplicitCopyNeedsNoPermission) {
  Graph graph;
  const Value a = graph.variable("a", kVector, ones());
  const Value b = with_device(graph, "/GPU:1", [&] { return graph.variable("b", kVector, ones()); });
  const Value sum = add(to_device(a, "/GPU:1"), b);
  place(graph, kThree, {});
  EXPECT_EQ(device_of(sum), "/device:GPU:1");
  EXPECT_EQ(count_copies(graph), 1u);
}

TEST(Placement, AnExplicitCopyToWhereTheValueLivesCopiesNothing) {
  Graph graph;
  const Value a = graph.variable("a", kVector, ones());
  const Value same = relu(to_device(a, "/GPU:0"));
  place(graph, kThree, {});
  EXPECT_EQ(count_copies(graph), 0u);
  const Plan plan = make_plan(graph, {{same}}, PlanMode::kDynamic, std::vector<int64_t>(2));
  EXPECT_EQ(plan.buffers.size(), 1u);
}

TEST(Placement, ACopyToTheDefaultDeviceInAGraphWithoutNamesCopiesNothing) {
  Graph graph;
  relu(to_device(graph.variable("a", kVector, ones()), ""));
  place(graph, kThree, {});
  EXPECT_EQ(count_copies(graph), 0u);
}

TEST(Placement, OneCopyServesAllReadersOfADevice) {
  Graph graph;
  const Value a = graph.variable("a", kVector, ones());
  {
    const DeviceScope second(graph, "/GPU:1");
    relu(a), sigmoid(a), add(a, a);
  }
  with_device(graph, "/CPU:0", [&] { return relu(a); });
  place(graph, kThree, kSilent);
  EXPECT_EQ(count_copies(graph), 2u);
  for (const Node& node : graph.nodes()) EXPECT_EQ(find_operand_elsewhere(graph, node), "");
}

TEST(Placement, AMissingDeviceIsAnErrorWithoutSoftPlacement) {
  const auto build = [](Graph& graph) {
    return with_device(graph, "/GPU:2", [&] { return graph.variable("w", kVector, ones()); });
  };
  Graph strict, soft;
  build(strict);
  const std::string message = refusal_to_place([&] { place(strict, kThree, kSilent); });
  EXPECT_TRUE(
      message.starts_with("Cannot assign a device for operation w: w was explicitly assigned to "
                          "/device:GPU:2 but available devices are [ "
                          "/job:localhost/replica:0/task:0/device:GPU:0, "))
      << message;
  const Value w = build(soft);
  place(soft, kThree, kSoft);
  EXPECT_EQ(device_of(w), "") << "another of its kind";
}

TEST(Placement, ARefusedGraphIsUnchanged) {
  Graph graph;
  const Value a = graph.variable("a", kVector, ones());
  with_device(graph, "/GPU:1", [&] { return relu(a); });
  with_device(graph, "/GPU:7", [&] { return relu(a); });
  EXPECT_THROW(place(graph, kThree, kSilent), InvalidArgument);
  EXPECT_EQ(graph.nodes().size(), 2u);
  EXPECT_EQ(graph.values().size(), 3u);
}

TEST(Placement, ACopyOfWhatAnUpdateChangesFirstIsRefused) {
  Graph graph;
  const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
  graph.add(CounterUpdate{}, std::vector<Value>{step});
  const DeviceScope second(graph, "/GPU:1");
  const Value rows = graph.variable("rows", kVector, zeros());
  const Value loss = fill(graph, 1, {});
  graph.add(RowUpdate{}, std::vector<Value>{step, rows, loss});
  const std::string message = refusal_to_place([&] { place(graph, kThree, kSilent); });
  EXPECT_NE(message.find("which an update before it changes"), std::string::npos) << message;
}

TEST(Placement, IsListedInTensorFlowsForm) {
  Graph graph;
  const Value a = graph.variable("a", kVector, ones());
  with_device(graph, "/GPU:1", [&] { return relu(a); });
  place(graph, kThree, kSilent);
  const std::vector<std::string> expected = {
      "a: (variable): /job:localhost/replica:0/task:0/device:GPU:0",
      "a/copy_to_device: (copy_to_device): /job:localhost/replica:0/task:0/device:GPU:1 from "
      "/job:localhost/replica:0/task:0/device:GPU:0, 256 B",
      "relu: (relu): /job:localhost/replica:0/task:0/device:GPU:1",
  };
  EXPECT_EQ(placement_lines(graph, kGpu0), expected);
}

// Two dense layers with dropout and Adam, the second on `device` (or nowhere in particular).
struct TwoLayers {
  Graph graph;
  Value x = graph.input("x", {DType::kF32, {16, 256}});
  Value labels = graph.input("labels", {DType::kI32, {16}});
  Value rate = graph.input("rate", {DType::kF32, {}});
  Value loss, step;
  std::vector<Value> parameters;

  explicit TwoLayers(const std::string& device, bool fused = false) {
    step = graph.variable("step", {DType::kI32, {}}, zeros());
    const Value w1 = graph.variable("w1", {DType::kF32, {256, 256}}, glorot_uniform({256, 256}, 1));
    const Value b1 = graph.variable("b1", {DType::kF32, {256}}, zeros());
    const Value hidden = dropout(relu(bias(matmul(x, w1), b1)), 0.25f, 3, step);
    const DeviceScope scope(graph, device);
    const Value w2 = graph.variable("w2", {DType::kF32, {256, 200}}, glorot_uniform({256, 200}, 2));
    const Value b2 = graph.variable("b2", {DType::kF32, {200}}, zeros());
    const Value here = device.empty() ? hidden : to_device(hidden, device);
    const Value wanted = device.empty() ? labels : to_device(labels, device);
    loss = mean(cross_entropy(bias(matmul(here, w2), b2), wanted));
    parameters = {w1, b1, w2, b2};
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
    if (fused) fuse(graph, std::vector<Value>{loss});
  }
  Targets training() const { return {{loss}, true}; }
};

// Losses and weights after some steps.
struct TrainedLayers {
  std::vector<float> losses;
  uint64_t checksum = 0;
  bool operator==(const TrainedLayers&) const = default;
};

TrainedLayers train(TwoLayers& net, Runtime& runtime, PlanMode mode) {
  const DeviceSet devices = place(net.graph, runtime);
  Variables variables(net.graph, devices);
  Session session(net.graph, net.training(), mode, variables);
  EXPECT_EQ(session.not_captured_because(), "");
  const std::vector<int64_t> workspace = [&] {
    const Kernels kernels(net.graph, devices);
    return std::vector<int64_t>(kernels.workspace_bytes().begin(), kernels.workspace_bytes().end());
  }();
  EXPECT_EQ(find_fault(net.graph, session.plan(), workspace), std::nullopt);
  TrainedLayers trained;
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> values = random_floats(16 * 256, static_cast<uint64_t>(step));
    std::copy(values.begin(), values.end(), session.input<float>(net.x).begin());
    for (int i = 0; i < 16; ++i) session.input<int32_t>(net.labels)[static_cast<size_t>(i)] = i;
    session.input<float>(net.rate)[0] = 1e-2f;
    session.run();
    trained.losses.push_back(session.output<float>(net.loss)[0]);
  }
  session.run(40);
  trained.checksum = variables.checksum(net.parameters);
  return trained;
}

TEST(PlacedPlan, EachTaskOfACaptureKnowsItsDevice) {
  TwoLayers net("/GPU:1");
  Runtime runtime({.device = "sim:four-2080ti"});
  const DeviceSet devices = place(net.graph, runtime);
  const auto kernels = std::make_shared<const Kernels>(net.graph, devices);
  Variables variables(net.graph, devices);
  const BoundPlan bound(net.graph,
                        make_plan(net.graph, net.training(), PlanMode::kPacked, kernels->workspace_bytes()),
                        kernels, variables);
  std::vector<int> nodes;
  for (const Step& step : bound.plan().steps) {
    if (step.kind == StepKind::kRun) nodes.push_back(step.id);
  }
  int ran = -1;
  std::set<Device*> used;
  for (const Task& task :
       make_tasks(bound, nodes, UpdatesBegin::kWithTheirOperands, [&](int node, Stream) { ran = node; })) {
    task.run({});
    EXPECT_EQ(task.device, devices.find(net.graph.node(ran).device).device) << net.graph.node(ran).name;
    used.insert(task.device);
  }
  EXPECT_EQ(used, (std::set<Device*>{&runtime.device("/GPU:0"), &runtime.device("/GPU:1")}));
}

TEST(PlacedPlan, ItsPeaksArePredictedForEachDevice) {
  for (const PlanMode plan : {PlanMode::kDynamic, PlanMode::kPacked}) {
    const RuntimeOptions options{.device = "sim:card-6gb", .plan = plan, .virtual_devices = "0:1GiB,1GiB"};
    TwoLayers net("/GPU:1");
    Runtime runtime(options);
    const DeviceSet devices = place(net.graph, runtime);
    const Kernels kernels(net.graph, devices);
    const Plan made = make_plan(net.graph, net.training(), options.plan, kernels.workspace_bytes());
    const Program program{.graph = {std::shared_ptr<const Graph>(), &net.graph},
                          .targets = {},
                          .plans = std::make_shared<const std::vector<Plan>>(std::vector{made})};
    const Prediction played = play(lower({&program, 1}, options), setup_of(options));
    Variables variables(net.graph, devices);
    Session session(net.graph, net.training(), options.plan, variables);
    for (int32_t& label : session.input<int32_t>(net.labels)) label = 0;
    session.run();
    session.run();
    ASSERT_EQ(played.devices.size(), 2u);
    for (size_t i = 0; i < played.devices.size(); ++i) {
      const PlayedDevice& device = played.devices[i];
      const PlacedDevice& placed = devices.all()[i];
      EXPECT_EQ(device.statistics.allocated.peak, placed.allocator->statistics().allocated.peak)
          << placed.name;
      EXPECT_EQ(device.statistics.reserved.peak, placed.allocator->statistics().reserved.peak) << placed.name;
      EXPECT_EQ(device.process_bytes, placed.device->memory().info().peak_process) << placed.name;
    }
  }
}

class PlacedTraining : public testing::TestWithParam<PlanMode> {};

TEST_P(PlacedTraining, OverVirtualDevicesThatCannotHoldTheNetGivesTheBitsOfOneDevice) {
  TwoLayers whole(""), halves("/GPU:1");
  Runtime one({.device = "sim:card-6gb"});
  const TrainedLayers expected = train(whole, one, GetParam());

  // Weights, gradients and Adam's state of one layer take 0.8 to 1.1 MiB, of both 1.9.
  constexpr const char* kLimits = "0:1280KiB,1280KiB";
  TwoLayers again("");
  Runtime too_small({.device = "sim:card-6gb", .strategy = "direct", .virtual_devices = kLimits});
  EXPECT_THROW(train(again, too_small, GetParam()), OutOfMemory);

  Runtime two({.device = "sim:card-6gb", .strategy = "direct", .virtual_devices = kLimits});
  EXPECT_EQ(train(halves, two, GetParam()), expected);
}

TEST_P(PlacedTraining, OverGpusOfDifferentSizesAndTheCpuGivesTheBitsOfOneDevice) {
  TwoLayers whole("", true), on_gpu("/GPU:1", true), on_cpu("/CPU:0", true);
  Runtime one({.device = "sim:card-6gb"});
  const TrainedLayers expected = train(whole, one, GetParam());
  Runtime gpus({.device = "sim:card-6gb", .gpus = 2, .others_by_gpu = "1:5GiB"});
  EXPECT_EQ(train(on_gpu, gpus, GetParam()), expected);
  Runtime with_cpu({.device = "sim:card-6gb"});
  EXPECT_EQ(train(on_cpu, with_cpu, GetParam()), expected);
}

INSTANTIATE_TEST_SUITE_P(Modes, PlacedTraining, testing::ValuesIn(kPlanModes),
                         [](const auto& mode) { return std::string(to_string(mode.param)); });

TEST(PlacedPlan, StatesWhatItTakesOfEachDeviceAndTheCheckerKnowsDevices) {
  TwoLayers net("/GPU:1");
  place(net.graph, kThree, {});
  const std::vector<int64_t> workspace(net.graph.nodes().size(), 512);
  for (const PlanMode mode : kPlanModes) {
    const Plan plan = make_plan(net.graph, net.training(), mode, workspace);
    EXPECT_EQ(find_fault(net.graph, plan, workspace), std::nullopt);
    ASSERT_EQ(plan.devices.size(), 2u);
    EXPECT_EQ(plan.devices[1].name, "/device:GPU:1");
    EXPECT_GT(plan.devices[0].peak_bytes, 16 * 256 * 4);
    EXPECT_GT(plan.devices[1].peak_bytes, 16 * 200 * 4);
    EXPECT_EQ(plan.peak_bytes, plan.devices[0].peak_bytes + plan.devices[1].peak_bytes);
    const auto damaged = [&](const auto& damage) {
      Plan copy = plan;
      damage(copy);
      return find_fault(net.graph, copy, workspace).has_value();
    };
    EXPECT_TRUE(damaged([](Plan& p) { p.buffers.back().device = 1 - p.buffers.back().device; }));
    EXPECT_TRUE(damaged([](Plan& p) { p.buffers.front().device = 2; }));
    EXPECT_TRUE(damaged([](Plan& p) { --p.devices[1].peak_bytes; }));
  }
}

TEST(PlacedPlan, GradientsAndUpdatesLiveWithTheirLayer) {
  TwoLayers net("/GPU:1");
  int updates = 0;
  for (const Node& node : net.graph.nodes()) {
    if (std::holds_alternative<AdamUpdate>(node.op)) {
      ++updates;
      for (int input : node.inputs) EXPECT_EQ(net.graph.value(input).device, node.device);
    }
    EXPECT_EQ(find_operand_elsewhere(net.graph, node), "");
  }
  EXPECT_EQ(updates, 2);
  for (const char* name : {"w2/m", "w2/v", "b2/m"}) {
    EXPECT_EQ(device_of(net.graph.find(name)), "/device:GPU:1") << name;
  }
  EXPECT_EQ(device_of(net.graph.find("w1/m")), "");
}

TEST(PlacedPlan, NothingIsFusedAcrossDevices) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {4, 8}});
  const Value w = graph.variable("w", {DType::kF32, {8, 8}}, ones());
  const Value b = graph.variable("b", {DType::kF32, {8}}, ones());
  const Value product = matmul(x, w);
  with_device(graph, "/GPU:1", [&] { return relu(bias(product, b)); });
  EXPECT_EQ(fuse(graph), 0);
}

TEST(PlacedSession, OutOfMemoryNamesTheDeviceAndLeavesNothingBehind) {
  TwoLayers net("/GPU:1");
  Runtime runtime({.device = "sim:card-6gb", .strategy = "direct", .virtual_devices = "0:4MiB,512KiB"});
  const DeviceSet devices = place(net.graph, runtime);
  try {
    Variables variables(net.graph, devices);
    FAIL() << "weights and Adam's state of the second layer are 600 KiB";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.facts().device, "/device:GPU:1");
    EXPECT_NE(std::string(error.what()).find("/device:GPU:1"), std::string::npos) << error.what();
  }
  for (const PlacedDevice& placed : devices.all()) {
    EXPECT_EQ(placed.allocator->statistics().allocated.current, 0) << placed.name;
  }
}

TEST(PlacedSession, AGraphOnOtherDevicesThanTheSetIsRefused) {
  TwoLayers net("/GPU:1");
  CpuHarness cpu;
  EXPECT_THROW(Variables(net.graph, cpu.device, *cpu.allocator), InvalidArgument);
  EXPECT_EQ(cpu.allocator->statistics().allocated.current, 0);
  EXPECT_THROW(Kernels(net.graph, cpu.device, *cpu.allocator), InvalidArgument);
}

}  // namespace
}  // namespace headroom
