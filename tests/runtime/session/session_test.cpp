#include "runtime/session/session.h"

#include <cmath>
#include <functional>

#include "allocators/observer.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "device/faulty/faulty_device.h"
#include "device/host/simulated_gpu.h"
#include "runtime/app/runtime.h"
#include "runtime/graph/categories.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "runtime/session/start_op.h"
#include "tests/runtime/session/harness.h"
#include "tests/runtime/session/small_net.h"

namespace headroom {
namespace {

TEST(Session, ComputesWhatTheGraphSays) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {2, 2}});
  const Value w = graph.variable("w", {DType::kF32, {2, 2}}, constant_of(2));
  const Value y = relu(sub(matmul(x, w), fill(graph, 3, {})));
  CpuHarness cpu;
  Variables variables(graph, cpu.device, *cpu.allocator);
  for (PlanMode mode : {PlanMode::kDynamic, PlanMode::kPacked}) {
    Session session(graph, {{y}, false}, mode, variables);
    const auto input = session.input<float>(x);
    for (size_t i = 0; i < 4; ++i) input[i] = static_cast<float>(i);
    session.run();
    EXPECT_EQ(fetch<float>(session, y), (std::vector<float>{0, 0, 7, 7}));
  }
}

// The results of a net in runs of these lengths: counted steps, weights and the last loss.
struct Trained {
  int32_t steps;
  uint64_t checksum;
  std::vector<float> loss;
  bool operator==(const Trained&) const = default;
};

Trained train_in_runs(PlanMode mode, const std::vector<int64_t>& lengths) {
  SmallNet net;
  CpuHarness cpu;
  Variables variables(net.graph, cpu.device, *cpu.allocator);
  Session session(net.graph, net.training(), mode, variables);
  net.feed(session);
  for (int64_t steps : lengths) session.run(steps);
  return {read<int32_t>(variables, net.step)[0], variables.checksum(net.parameters),
          fetch<float>(session, net.loss)};
}

TEST(Session, ManyStepsInOneRunGiveTheBitsOfAsManyRuns) {
  for (PlanMode mode : kPlanModes) {
    for (int32_t steps : {2, 33, 70}) {
      const Trained one_by_one = train_in_runs(mode, std::vector<int64_t>(static_cast<size_t>(steps), 1));
      EXPECT_EQ(one_by_one.steps, steps);
      EXPECT_EQ(train_in_runs(mode, {steps}), one_by_one) << to_string(mode) << " " << steps;
    }
  }
}

// A longer run captures its steps anew; a shorter one replays the capture if it fits.
TEST(Session, RunsOfAnyLengthsOneAfterTheOtherGiveTheBitsOfOneRun) {
  for (PlanMode mode : kPlanModes) {
    EXPECT_EQ(train_in_runs(mode, {4, 2, 7, 1, 40}), train_in_runs(mode, {54})) << to_string(mode);
  }
}

// The ops could work in place, on the input itself.
TEST(Session, EachOfManyStepsReadsTheInputsAsTheyWereFed) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {3}});
  const Value y = scale(scale(x, 2), 2);
  CpuHarness cpu;
  Variables variables(graph, cpu.device, *cpu.allocator);
  for (PlanMode mode : kPlanModes) {
    Session session(graph, {{y, x}, false}, mode, variables);
    for (size_t i = 0; i < 3; ++i) session.input<float>(x)[i] = static_cast<float>(i);
    session.run(3);
    EXPECT_EQ(fetch<float>(session, y), (std::vector<float>{0, 4, 8})) << to_string(mode);
    EXPECT_EQ(fetch<float>(session, x), (std::vector<float>{0, 1, 2})) << to_string(mode);
  }
}

// Only a plan without an arena, which frees its inputs, copies them in again.
TEST(Session, ARunAgainReadsTheInputsThatAreOnTheDevice) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {1}});
  const Value y = scale(x, 2);
  CpuHarness cpu;
  Variables variables(graph, cpu.device, *cpu.allocator);
  for (PlanMode mode : kPlanModes) {
    Session session(graph, {{y}, false}, mode, variables);
    session.input<float>(x)[0] = 1;
    session.run_again();
    EXPECT_EQ(fetch<float>(session, y)[0], 2) << to_string(mode) << ": nothing has run before";
    session.input<float>(x)[0] = 5;
    for (int64_t steps : {1, 3}) {
      session.run_again(steps);
      EXPECT_EQ(fetch<float>(session, y)[0], has_arena(mode) ? 2 : 10) << to_string(mode);
    }
    EXPECT_THROW(session.run_again(0), InvalidArgument);
  }
}

TEST(Session, FewerThanOneStepIsRefused) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {3}});
  CpuHarness cpu;
  Variables variables(graph, cpu.device, *cpu.allocator);
  Session session(graph, {{relu(x)}, false}, PlanMode::kPacked, variables);
  EXPECT_THROW(session.run(0), InvalidArgument);
  EXPECT_THROW(session.run(-1), InvalidArgument);
}

// The categories must be those of the graph when the session starts.
TEST(Session, ValuesAddedAfterTheVariablesKeepTheirNamesAndCategories) {
  for (const PlanMode mode : kPlanModes) {
    Graph graph;
    const Value x = graph.input("x", {DType::kF32, {3, 3}});
    CpuHarness cpu;
    Variables variables(graph, cpu.device, *cpu.allocator);
    const Value y = matmul(x, x);
    std::vector<std::string> seen;
    cpu.allocator->set_observer([&](const AllocatorEvent& event) {
      if (event.user.tensor != graph.value(y.id).name) return;
      EXPECT_EQ(event.user.category, categorize(graph)[static_cast<size_t>(y.id)]);
      seen.emplace_back(event.user.tensor);
    });
    Session session(graph, {{y}, false}, mode, variables);
    session.run();
    EXPECT_FALSE(seen.empty()) << to_string(mode);
    cpu.allocator->set_observer({});
  }
}

// Copies, captures and launches: each fails in turn, in a session that has and in one that has not
// run.
TEST(Session, AFaultInARunOfManyStepsLeavesWholeStepsAndAUsableSession) {
  constexpr int64_t kSteps = 40;
  SmallNet net;
  CpuHarness reference;
  Variables all(net.graph, reference.device, *reference.allocator);
  Session plain(net.graph, net.training(), PlanMode::kDynamic, all);
  net.feed(plain);
  plain.run(kSteps);

  for (PlanMode mode : {PlanMode::kPacked, PlanMode::kParallel}) {
    bool fired = true;
    int64_t call = 1;
    for (; fired; ++call) {
      CpuDevice cpu;
      FaultyDevice device(cpu);
      const auto allocator = make_allocator({.name = "direct"}, device);
      Variables variables(net.graph, device, *allocator);
      Session session(net.graph, net.training(), mode, variables);
      net.feed(session);
      device.faults().arm({.failing_call = call});
      try {
        session.run(kSteps);
      } catch (const DeviceError&) {
      } catch (const LibraryError&) {
      }
      fired = device.faults().calls() >= call;
      device.faults().arm({});
      const int64_t done = read<int32_t>(variables, net.step)[0];
      if (done < kSteps) session.run(kSteps - done);
      ASSERT_EQ(variables.checksum(net.parameters), all.checksum(net.parameters))
          << to_string(mode) << " call " << call << " after " << done;
    }
    EXPECT_GT(call, 10) << "copies, captures and launches are calls";
  }
}

TEST(Session, AFaultInTheDataChangesNoVariableAndTheSessionGoesOn) {
  for (PlanMode mode : kPlanModes) {
    Graph graph;
    const Value table = graph.variable("table", {DType::kF32, {4, 2}}, ones());
    const Value indices = graph.input("indices", {DType::kI32, {3}});
    const Value rate = graph.input("rate", {DType::kF32, {}});
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    const Value loss = sum(gather(table, indices));
    const std::vector<Value> trained = {table};
    add_updates(Sgd{}, trained, gradients(loss, trained), rate, step);
    CpuHarness cpu;
    Variables variables(graph, cpu.device, *cpu.allocator);
    Session session(graph, {{loss}, true}, mode, variables);
    session.input<float>(rate)[0] = 1;
    for (int run = 0; run < 3; ++run) {  // launched one by one, captured, replayed
      const std::vector<float> before = read<float>(variables, table);
      session.input<int32_t>(indices)[1] = 4;
      EXPECT_THROW(session.run(), DeviceError) << to_string(mode);
      EXPECT_EQ(read<float>(variables, table), before);
      session.input<int32_t>(indices)[1] = 2;
      EXPECT_NO_THROW(session.run()) << to_string(mode);
      EXPECT_EQ(read<int32_t>(variables, step)[0], run + 1);
    }
  }
}

TEST(Session, WrongInputsAndOutputsAreRefusedByName) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {2}}), unused = graph.input("unused", {DType::kF32, {2}});
  const Value y = relu(x);
  CpuHarness cpu;
  Variables variables(graph, cpu.device, *cpu.allocator);
  Session session(graph, {{y}, false}, PlanMode::kDynamic, variables);
  EXPECT_THROW(session.input<int32_t>(x), InvalidArgument);
  EXPECT_THROW(session.input<float>(unused), InvalidArgument);
  EXPECT_THROW(session.output<float>(x), InvalidArgument);
}

TEST(Session, VariablesOfAnotherGraphOrAddedLaterAreRefused) {
  Graph graph, other;
  const Value w = graph.variable("w", {DType::kF32, {2}}, ones());
  CpuHarness cpu;
  Variables variables(graph, cpu.device, *cpu.allocator), none(other, cpu.device, *cpu.allocator);
  EXPECT_THROW(Session(graph, {{relu(w)}, false}, PlanMode::kDynamic, none), InvalidArgument);
  const Value late = graph.variable("late", {DType::kF32, {2}}, ones());
  EXPECT_THROW(variables.read(late), InvalidArgument);
  for (const PlanMode mode : {PlanMode::kDynamic, PlanMode::kPacked}) {
    EXPECT_THROW(Session(graph, {{relu(late)}, false}, mode, variables), InvalidArgument);
  }
}

// One parameter, three steps of each optimizer, against the formulas of their papers in double.
TEST(Optimizers, FollowTheirFormulas) {
  const double g = 0.5, rate = 0.1;  // loss = g w, so the gradient is g at every step
  struct OptimizerCase {
    const char* name;
    Optimizer optimizer;
    double expected;
  };
  const double m1 = 0.9, v = g * g;
  double rms = 1, rms_square = 0;
  for (int i = 0; i < 3; ++i) {
    rms_square = 0.9 * rms_square + 0.1 * v;
    rms -= rate * g / (std::sqrt(rms_square) + 1e-7);
  }
  const OptimizerCase rows[] = {
      {"sgd", Sgd{}, 1 - 3 * rate * g},
      {"momentum", Sgd{0.9f, false}, 1 - rate * g * (1 + (1 + m1) + (1 + m1 + m1 * m1))},
      {"nesterov", Sgd{0.9f, true},
       1 - rate * g * ((1 + m1) + (1 + m1 * (1 + m1)) + (1 + m1 * (1 + m1 + m1 * m1)))},
      {"rmsprop", Rmsprop{}, rms},
      {"adam", Adam{}, 1 - 3 * rate},  // bias correction makes m = g, v = g^2 exactly
      {"adamw", AdamW{0.9f, 0.999f, 1e-8f, 0.5f}, ((1 * 0.95 - rate) * 0.95 - rate) * 0.95 - rate},
  };
  for (const OptimizerCase& row : rows) {
    Graph graph;
    const Value w = graph.variable("w", {DType::kF32, {1}}, ones());
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    const Value lr = graph.input("lr", {DType::kF32, {}});
    const Value loss = sum(scale(w, static_cast<float>(g)));
    const std::vector<Value> trained = {w};
    add_updates(row.optimizer, trained, gradients(loss, trained), lr, step);
    CpuHarness cpu;
    Variables variables(graph, cpu.device, *cpu.allocator);
    Session session(graph, {{loss}, true}, PlanMode::kDynamic, variables);
    session.input<float>(lr)[0] = static_cast<float>(rate);
    for (int i = 0; i < 3; ++i) session.run();
    EXPECT_NEAR(static_cast<double>(read<float>(variables, w)[0]), row.expected, 2e-6) << row.name;
    EXPECT_EQ(read<int32_t>(variables, step)[0], 3);
  }
}

TEST(BatchNorm, TrainingMovesTheAveragesThatInferenceReads) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {4, 1}});
  const BatchNormState state = batch_norm_state(graph, 1);
  const Value trained = batch_norm_training(x, state, 0.5f), inferred = batch_norm_inference(x, state);
  CpuHarness cpu;
  Variables variables(graph, cpu.device, *cpu.allocator);
  Session training(graph, {{trained}, true}, PlanMode::kDynamic, variables);
  const auto input = training.input<float>(x);
  for (size_t i = 0; i < 4; ++i) input[i] = static_cast<float>(2 * i);  // mean 3, variance 5
  training.run();
  EXPECT_FLOAT_EQ(read<float>(variables, state.running_mean)[0], 1.5f);
  EXPECT_FLOAT_EQ(read<float>(variables, state.running_variance)[0], 3.0f);
  Session inference(graph, {{inferred}, false}, PlanMode::kDynamic, variables);
  inference.input<float>(x)[0] = 1.5f;
  inference.run();
  EXPECT_NEAR(inference.output<float>(inferred)[0], 0, 1e-6);
}

TEST(Session, OutOfMemoryNamesOpAndTensorAndLeavesTheSessionUsable) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {1 << 20}});
  const Value y = concat({relu(x), sigmoid(x)}, 0);  // 4 + 4 + 8 MiB at once, with x 4 more
  CpuDevice device(10 * (1 << 20));
  const auto allocator = make_allocator({.name = "direct"}, device);
  Variables variables(graph, device, *allocator);
  Session session(graph, {{y}, false}, PlanMode::kDynamic, variables);
  for (int i = 0; i < 2; ++i) {
    try {
      session.run();
      FAIL() << "16 MiB fit into 10";
    } catch (const OutOfMemory& error) {
      EXPECT_EQ(error.facts().op, "concat");
      EXPECT_EQ(error.facts().tensor, "concat");
      EXPECT_EQ(error.facts().requested, 8 << 20);
      EXPECT_NE(std::string(error.what()).find("concat"), std::string::npos);
    }
    EXPECT_EQ(allocator->statistics().allocated.current, 0);
  }
}

TEST(Session, ABlasHandleThatFailsGivesTensorFlowsMessage) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {64, 576}});
  const Value w = graph.variable("w", {DType::kF32, {576, 64}}, zeros());
  const Value y = matmul(x, w);
  DeviceProfile profile = find_profile("laptop-2gb");
  profile.blas.needed_bytes = profile.total_bytes;
  SimulatedGpu device(profile);
  const auto allocator = make_allocator({.name = "allow-growth"}, device);
  Variables variables(graph, device, *allocator);
  Session session(graph, {{y}, false}, PlanMode::kDynamic, variables);
  try {
    session.run();
    FAIL() << "the handle was made without room";
  } catch (const LibraryError& error) {
    EXPECT_EQ(error.message(),
              "Blas xGEMM launch failed : a.shape=[1,64,576], b.shape=[1,576,64], m=64, n=64, k=576 [[node "
              "matmul]]");
    ASSERT_TRUE(error.memory().has_value());
    const MemoryInfo info = device.memory().info();
    EXPECT_EQ(error.memory()->device_total, info.total);
    EXPECT_EQ(error.memory()->device_free, info.free);
    EXPECT_EQ(error.memory()->others, profile.others_bytes);
    EXPECT_GT(error.memory()->allocated,
              allocator->statistics().allocated.current);  // includes the step's memory
    EXPECT_EQ(error.memory()->reserved, allocator->statistics().reserved.current);
    EXPECT_EQ(std::string(error.what()).rfind(error.message(), 0), 0u);
    EXPECT_NE(std::string(error.what()).find("329.00 MiB held by others"), std::string::npos);
    ASSERT_EQ(error.log().size(), 5u);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(error.log()[static_cast<size_t>(i)],
                "failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED");
    }
    EXPECT_EQ(error.log()[4],
              "attempting to perform BLAS operation using StreamExecutor without BLAS support");
    EXPECT_EQ(error.status(), "CUBLAS_STATUS_NOT_INITIALIZED");
  }
}

TEST(Session, ALibraryThatFindsNoRoomGetsWhatTheStrategyHoldsIdle) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {256, 256}});
  const Value y = matmul(x, x);
  SimulatedGpu device(find_profile("laptop-2gb"));
  const auto allocator = make_allocator({.name = "allow-growth"}, device);
  Variables variables(graph, device, *allocator);
  // The pool takes most of the device and then holds it idle.
  std::vector<void*> blocks;
  constexpr int64_t kBlock = 64 << 20;
  for (int i = 0; i < 19; ++i) blocks.push_back(allocator->allocate(kBlock));
  for (void* block : blocks) allocator->deallocate(block, kBlock);
  ASSERT_LT(device.memory().info().free, device.profile().blas.needed_bytes + (300 << 20));
  Session session(graph, {{y}, false}, PlanMode::kDynamic, variables);
  void* rest = nullptr;
  std::vector<void*> taken;
  while ((rest = device.memory().try_allocate(2 << 20)) != nullptr)
    taken.push_back(rest);  // others take the rest
  EXPECT_NO_THROW(session.run());
  for (void* pointer : taken) device.memory().release(pointer, 2 << 20);
}

TEST(StartOp, KernelsThatFindNoRoomGetWhatTheStrategyHoldsIdle) {
  SimulatedGpu device(find_profile("laptop-2gb"));
  const auto allocator = make_allocator({.name = "allow-growth"}, device);
  constexpr int64_t kBlock = 64 << 20;
  allocator->deallocate(allocator->allocate(kBlock), kBlock);  // idle now, but not given back
  ASSERT_EQ(allocator->statistics().reserved.current, kBlock);
  std::vector<void*> taken;
  while (void* rest = device.memory().try_allocate(2 << 20)) taken.push_back(rest);  // others take the rest
  const Op relu = Unary{UnaryKind::kRelu};
  EXPECT_NO_THROW(start_op(relu, device, *allocator));
  EXPECT_EQ(allocator->statistics().reserved.current, 0);
  for (void* pointer : taken) device.memory().release(pointer, 2 << 20);
}

TEST(Runtime, LibrariesFirstLeaveAllTheRestToThePoolAndStillStart) {
  Runtime first({.device = "sim", .strategy = "grab-all", .libraries_first = true});
  Device& device = first.device();
  for (const Library library : {Library::kBlas, Library::kDnn}) {
    device.libraries().start(library);
    device.libraries().load_module("op", library);
  }
  device.libraries().load_module("relu", Library::kNone);
  Runtime guessed({.device = "sim", .strategy = "grab-all"});
  guessed.allocator();
  EXPECT_GT(first.memory_info().process, guessed.memory_info().process);
  EXPECT_LT(first.memory_info().free, 2 * kMiB);
  guessed.device().libraries().start(Library::kDnn);
  EXPECT_THROW(guessed.device().libraries().start(Library::kBlas), LibraryError);
}

TEST(Runtime, ALateChangeSaysWhoInitializedTheDevice) {
  Runtime runtime({.device = "sim"});
  runtime.set_memory_growth(true);
  runtime.set_strategy({.name = "allow-growth"});
  runtime.device();
  for (const auto& change : std::vector<std::function<void()>>{
           [&] { runtime.set_memory_growth(false); }, [&] { runtime.set_strategy({.name = "grab-all"}); }}) {
    try {
      change();
      FAIL() << "changed after initialization";
    } catch (const InvalidArgument& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("/device:GPU:0"), std::string::npos) << message;
      EXPECT_NE(message.find("session_test.cpp:"), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace headroom
