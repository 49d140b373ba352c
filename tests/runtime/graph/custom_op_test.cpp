// Ops that a program describes itself are nodes like others: computed, trained, planned, computed again; and
// each refusal names the op.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "answers/program.h"
#include "base/errors.h"
#include "runtime/app/runtime.h"
#include "runtime/graph/optimizer.h"
#include "runtime/graph/precision.h"
#include "runtime/plan/frontier.h"
#include "runtime/plan/split_batch.h"
#include "runtime/plan/step_cost.h"
#include "tests/runtime/graph/custom_ops.h"
#include "tests/runtime/session/harness.h"

namespace headroom::test {
namespace {

std::string refused(const std::function<void()>& action) {
  try {
    action();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

// relu, of the tree or as a custom op.
using Activation = std::function<Value(Value)>;
Value of_the_tree(Value x) {
  return relu(x);
}
Value of_the_program(Value x) {
  return custom(kCustomRelu, {x})[0];
}

// A chain of products, each with its activation, trained with Adam.
struct CustomNet {
  Graph graph;
  Value x, rate, step, loss;
  std::vector<Value> weights;

  explicit CustomNet(const Activation& activation, int layers = 3, int64_t batch = 16)
      : x(graph.input("x", {DType::kF32, {batch, 32}})),
        rate(graph.input("rate", {DType::kF32, {}})),
        step(graph.variable("step", {DType::kI32, {}}, zeros())) {
    Value y = x;
    for (int layer = 0; layer < layers; ++layer) {
      const auto seed = static_cast<uint64_t>(layer + 1);
      weights.push_back(graph.variable("w" + std::to_string(layer), {DType::kF32, {32, 32}},
                                       glorot_uniform({32, 32}, seed)));
      y = activation(matmul(y, weights.back()));
    }
    loss = mean(mul(y, y));
    add_updates(Adam{}, weights, gradients(loss, weights), rate, step);
  }
  Targets targets() const { return {{loss}, true}; }
};

// The bits of the weights after some steps of the net, or of a graph that was rewritten from its own.
uint64_t bits_after_training(const CustomNet& net, Graph& graph, PlanMode mode, const char* device) {
  const auto here = [&](const Value& value) { return Value{&graph, value.id}; };
  Runtime runtime({.device = device});
  Variables variables(graph, runtime.device(), runtime.allocator());
  Session session(graph, {{here(net.loss)}, true}, mode, variables);
  const std::vector<float> data = random_floats(net.x.shape().elements(), 5);
  std::copy(data.begin(), data.end(), session.input<float>(here(net.x)).begin());
  session.input<float>(here(net.rate))[0] = 1e-2f;
  session.run(4);
  std::vector<Value> weights;
  for (const Value& weight : net.weights) weights.push_back(here(weight));
  return variables.checksum(weights);
}

TEST(CustomOps, ComputeAllResultsOnEveryDeviceInEveryPlan) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {3, 4}}), k = graph.input("k", {DType::kI32, {3}});
  const std::vector<Value> y = custom(kPowers, {x, k});
  for (const char* device : {"cpu", "sim"}) {
    for (const PlanMode mode : kPlanModes) {
      Runtime runtime({.device = device});
      Variables variables(graph, runtime.device(), runtime.allocator());
      Session session(graph, {{y[0], y[1]}, false}, mode, variables);
      for (size_t i = 0; i < 12; ++i) session.input<float>(x)[i] = static_cast<float>(i) / 2;
      for (size_t i = 0; i < 3; ++i) session.input<int32_t>(k)[i] = static_cast<int32_t>(i) - 1;
      session.run();
      for (size_t row = 0; row < 3; ++row) {
        float cubes = 0;
        for (size_t i = 4 * row; i < 4 * row + 4; ++i) {
          const float value = static_cast<float>(i) / 2;
          cubes += value * value * value;
          EXPECT_EQ(session.output<float>(y[0])[i], (static_cast<float>(row) - 1) * value * value);
        }
        EXPECT_EQ(session.output<float>(y[1])[row], cubes) << device << " " << to_string(mode);
      }
    }
  }
}

TEST(CustomOps, TrainWithTheBitsOfTheSameOpInTheTree) {
  const CustomNet ours(of_the_tree), custom(of_the_program);
  const std::unique_ptr<Graph> expected = ours.graph.copy(), graph = custom.graph.copy();
  const uint64_t bits = bits_after_training(ours, *expected, PlanMode::kPacked, "cpu");
  for (const char* device : {"cpu", "sim"}) {
    for (const PlanMode mode : kPlanModes)
      EXPECT_EQ(bits_after_training(custom, *graph, mode, device), bits) << device << " " << to_string(mode);
  }
}

TEST(CustomOps, AreComputedAgainUnderABudgetWithTheSameBits) {
  const CustomNet net(of_the_program, 12, 256);
  const std::vector<int64_t> workspace = workspaces_of_cpu_kernels(net.graph);
  const std::vector<double> us = node_times_us(net.graph, {.flops_per_us = 1e6, .bytes_per_us = 1e4});
  const Targets targets = net.targets();
  Frontier frontier(net.graph, targets, {workspace, us});
  const StepPoint least = frontier.solve(0);
  const std::unique_ptr<Graph> whole = net.graph.copy(), less = rewritten(net.graph, least.schedule);
  const auto count = [](const Graph& graph) {
    return std::count_if(graph.nodes().begin(), graph.nodes().end(),
                         [](const Node& node) { return op_name(node.op) == "custom_relu"; });
  };
  EXPECT_GT(count(*less), count(*whole));
  EXPECT_EQ(bits_after_training(net, *less, PlanMode::kPacked, "sim"),
            bits_after_training(net, *whole, PlanMode::kPacked, "sim"));
}

TEST(CustomOps, RunInPartsOfTheBatchOnlyIfTheySaySo) {
  CustomOp whole_batch = kCustomRelu;
  whole_batch.splits_batch = false;
  const auto reason = [](const Activation& activation) {
    const CustomNet whole(activation, 3, 16), part(activation, 3, 8);
    const Targets targets = whole.targets();
    return why_not_split(whole.graph, part.graph, 2, {&targets, 1});
  };
  EXPECT_EQ(reason(of_the_program), "");
  EXPECT_EQ(reason([&](Value x) { return custom(whole_batch, {x})[0]; }),
            "custom_relu may compute one row of the batch from others");
}

TEST(CustomOps, KeepTheirTypesInAGraphStoredIn16Bits) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {8, 32}});
  const Value w = graph.variable("w", {DType::kF32, {32, 32}}, glorot_uniform({32, 32}, 1));
  const Value before = matmul(x, w), y = custom(kCustomRelu, {before})[0], after = matmul(y, w);
  store_in(graph, Precision::kBf16, {});
  EXPECT_EQ(before.spec().dtype, DType::kF32);
  EXPECT_EQ(y.spec().dtype, DType::kF32);
  EXPECT_EQ(after.spec().dtype, DType::kBf16);
  for (const Node& node : graph.nodes()) {
    const DType read = graph.value(node.inputs[0]).spec.dtype;
    if (std::holds_alternative<MatMul>(node.op)) {
      EXPECT_EQ(read, DType::kBf16);
    } else if (std::holds_alternative<Custom>(node.op)) {
      EXPECT_EQ(read, DType::kF32);
    }
  }
  CpuHarness cpu;
  Variables variables(graph, cpu.device, *cpu.allocator);
  Session session(graph, {{y}, false}, PlanMode::kPacked, variables);
  std::fill_n(session.input<float>(x).begin(), x.shape().elements(), 1.0f);
  session.run();
  for (const float value : session.output<float>(y)) EXPECT_GE(value, 0);
}

TEST(CustomOps, TakeTypesOf16BitsAsTheyAre) {
  const CustomOp bytes = {.name = "bytes",
                          .infer =
                              [](const OpCheck& c) {
                                return Outputs{{DType::kU8, {c.input(0).bytes()}}};
                              },
                          .cpu =
                              [](const KernelCall& call) {
                                std::copy_n(call.in<uint8_t>(0), call.outputs[0].elements(),
                                            call.out<uint8_t>());
                              }};
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {2}});
  const Value y = custom(bytes, {cast(x, DType::kBf16)})[0];
  ASSERT_EQ(y.shape(), Shape{4});
  CpuHarness cpu;
  Variables variables(graph, cpu.device, *cpu.allocator);
  Session session(graph, {{y}, false}, PlanMode::kPacked, variables);
  session.input<float>(x)[0] = 1, session.input<float>(x)[1] = -2;
  session.run();
  EXPECT_EQ(fetch<uint8_t>(session, y), (std::vector<uint8_t>{0x80, 0x3f, 0, 0xc0}));
}

TEST(CustomOps, RefuseOperandsThatTheirDescriptionDoesNotTake) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {2, 3}});
  EXPECT_EQ(refused([&] { custom(kPowers, {x}); }), "custom(f32[2,3]): takes 2 operands, got 1");
  EXPECT_EQ(refused([&] { custom(kPowers, {}); }), "custom: operand 0 is not a value of a graph");
  CustomOp op = kCustomRelu;
  op.infer = [](const OpCheck&) { return Outputs{}; };
  EXPECT_EQ(refused([&] { custom(op, {x}); }),
            "custom_relu(f32[2,3]): `infer` of the CustomOp gives no results");
  op.infer = nullptr;
  EXPECT_EQ(refused([&] { custom(op, {x}); }), "custom_relu(f32[2,3]): the CustomOp has no function `infer`");
  op.name = "";
  EXPECT_EQ(refused([&] { custom(op, {x}); }), "(f32[2,3]): the CustomOp has no name");
  EXPECT_TRUE(graph.nodes().empty());
}

TEST(CustomOps, RefuseGradientsThatDoNotFitTheirOperands) {
  CustomOp op = kPowers;
  const auto refusal = [&] {
    Graph graph;
    const NameScope scope(graph, "net");
    const std::vector<Value> x = {graph.variable("x", {DType::kF32, {2, 3}}, zeros())};
    const Value k = graph.variable("k", {DType::kI32, {2}}, zeros());
    const Value loss = mean(custom(op, {x[0], k})[0]);
    return refused([&] { gradients(loss, x); });
  };
  EXPECT_EQ(refusal(), "accepted");
  op.gradient = nullptr;
  EXPECT_EQ(refusal(),
            "gradients: the path to the loss goes through net/custom, which has no gradient (custom)");
  op.gradient = [](const GradientContext& c) { return Gradients{c.dy()}; };
  EXPECT_EQ(refusal(), "gradients: net/custom: its gradient gives 1 values for 2 operands");
  op.gradient = [](const GradientContext& c) { return Gradients{sum(c.dy()), std::nullopt}; };
  EXPECT_EQ(refusal(),
            "gradients: net/custom: its gradient of operand 0 is f32[], but the operand is f32[2,3]");
  op.gradient = [](const GradientContext& c) { return Gradients{c.dy(), c.in[1]}; };
  EXPECT_EQ(refusal(),
            "gradients: net/custom: its gradient of operand 1 must be absent, because the operand is i32[2]");
  op.gradient = [](const GradientContext& c) { return Gradients{Value{}, c.in[1]}; };
  EXPECT_EQ(refusal(), "gradients: net/custom: its gradient of operand 0 belongs to another graph");
}

// 0.5 d(sum of x^3)/dx, and zeros for the result that the loss does not depend on.
TEST(CustomOps, GetZerosForResultsThatTheLossDoesNotDependOn) {
  Graph graph;
  const std::vector<Value> x = {graph.variable("x", {DType::kF32, {2, 1}}, constant_of(2))};
  const Value k = graph.variable("k", {DType::kI32, {2}}, ones());
  const Value dx = gradients(mean(custom(kPowers, {x[0], k})[1]), x)[0];
  CpuHarness cpu;
  Variables variables(graph, cpu.device, *cpu.allocator);
  Session session(graph, {{dx}, false}, PlanMode::kPacked, variables);
  session.run();
  EXPECT_EQ(fetch<float>(session, dx), (std::vector<float>{6, 6}));
}

TEST(CustomOps, WithoutAKernelForTheDeviceArePlannedAndNotRun) {
  CustomOp op = kCustomReluGrad;
  op.cpu = nullptr;
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {256, 32}});
  const Value y = custom(op, {x, x})[0];
  const std::vector<int64_t> workspace = workspaces_of_cpu_kernels(graph);
  EXPECT_EQ(workspace, std::vector<int64_t>{x.spec().bytes()});
  EXPECT_EQ(make_plan(graph, {{y}, false}, PlanMode::kPacked, workspace).lower_bound_bytes,
            3 * x.spec().bytes());
  for (const char* device : {"cpu", "sim"}) {
    Runtime runtime({.device = device});
    Variables variables(graph, runtime.device(), runtime.allocator());
    EXPECT_EQ(refused([&] {
                Session(graph, {{y}, false}, PlanMode::kPacked, variables);
              }),
              "custom_relu_grad has no kernel for this device: its CustomOp has no function `cpu`");
  }
  op.workspace_bytes = [](std::span<const TensorSpec>) { return int64_t{-1}; };
  EXPECT_EQ(refused([&] { workspaces_of_cpu_kernels(graph); }),
            "custom_relu_grad(f32[256,32], f32[256,32]): `workspace_bytes` of the CustomOp gives -1");
}

TEST(CustomOps, ThatThrowAreNamedAndLeaveTheSessionUsable) {
  std::function<void()> fault;
  CustomOp op = kCustomRelu;
  op.cpu = [&](const KernelCall& call) {
    if (fault) fault();
    kCustomRelu.cpu(call);
  };
  const CustomNet net([&](Value x) { return custom(op, {x})[0]; });
  const std::unique_ptr<Graph> same = net.graph.copy();
  for (const PlanMode mode : kPlanModes) {
    fault = nullptr;
    const uint64_t bits = bits_after_training(net, *same, mode, "cpu");
    CpuHarness cpu;
    Variables variables(net.graph, cpu.device, *cpu.allocator);
    Session session(net.graph, net.targets(), mode, variables);
    const std::vector<float> data = random_floats(net.x.shape().elements(), 5);
    std::copy(data.begin(), data.end(), session.input<float>(net.x).begin());
    session.input<float>(net.rate)[0] = 1e-2f;
    session.run(2);
    const int64_t allocated = cpu.allocator->statistics().allocated.current;
    fault = [] { throw std::runtime_error("no table"); };
    try {
      session.run();
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "custom_relu: its kernel failed: no table");
    }
    fault = [] { throw DeviceError("launch", "1", "bad", "here"); };
    EXPECT_THROW(session.run(), DeviceError) << "an error of ours stays as it is";
    EXPECT_EQ(cpu.allocator->statistics().allocated.current, allocated) << to_string(mode);
    fault = nullptr;
    session.run(2);
    EXPECT_EQ(variables.checksum(net.weights), bits) << to_string(mode);
  }
}

}  // namespace
}  // namespace headroom::test
