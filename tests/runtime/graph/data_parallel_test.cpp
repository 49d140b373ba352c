#include "runtime/graph/data_parallel.h"

#include <algorithm>
#include <functional>
#include <map>
#include <thread>

#include "base/errors.h"
#include "collective/faulty/faulty_collective.h"
#include "collective/in_process/in_process_collective.h"
#include "collective/staged_collective.h"
#include "runtime/app/replicas.h"
#include "runtime/graph/fuse.h"
#include "runtime/graph/placement.h"
#include "runtime/graph/precision.h"
#include "tests/runtime/session/harness.h"
#include "tests/runtime/session/small_net.h"

namespace headroom {
namespace {

constexpr BucketSettings kOneEach{1, 1};  // a bucket for every gradient

std::vector<const Node*> nodes_of(const Graph& graph, std::string_view op) {
  std::vector<const Node*> found;
  for (const Node& node : graph.nodes()) {
    if (op_name(node.op) == op) found.push_back(&node);
  }
  return found;
}

// Two dense layers on 8 features, trained with Adam on a share of a batch.
struct Net {
  Graph graph;
  Value x, labels, rate, step, loss;
  std::vector<Value> parameters;

  Net(int64_t batch, int replicas, const BucketSettings& buckets = {}, const Shard& shard = {},
      Precision precision = Precision::kF32)
      : x(graph.input("x", {DType::kF32, {batch, 8}})),
        labels(graph.input("labels", {DType::kI32, {batch}})),
        rate(graph.input("rate", {DType::kF32, {}})),
        step(graph.variable("step", {DType::kI32, {}}, zeros())) {
    const Value w1 = graph.variable("w1", {DType::kF32, {8, 100}}, glorot_uniform({8, 100}, 1));
    const Value b1 = graph.variable("b1", {DType::kF32, {100}}, zeros());
    const Value w2 = graph.variable("w2", {DType::kF32, {100, 3}}, glorot_uniform({100, 3}, 2));
    parameters = {w1, b1, w2};
    loss = mean(cross_entropy(matmul(relu(bias(matmul(x, w1), b1)), w2), labels));
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step, 1, shard);
    store_in(graph, precision, std::vector{loss});
    reduce_gradients(graph, replicas, buckets);
  }
};

struct Result {
  std::vector<float> losses;        // by step
  std::vector<uint64_t> checksums;  // checksums of the weights, after each step
  std::vector<float> weights;       // at the end
  int64_t optimizer_bytes = 0;
};

constexpr int kReplicaSteps = 5;
constexpr int64_t kBatch = 12;

Result train(const Net& net, PlanMode mode, int rank, Device& device, Allocator& allocator,
             DeviceCollective* collective) {
  const auto kernels =
      std::make_shared<const Kernels>(net.graph, device, allocator, KernelSettings{.collective = collective});
  Variables variables(net.graph, device, allocator);
  Session session(net.graph, make_plan(net.graph, {{net.loss}, true}, mode, kernels->workspace_bytes()),
                  kernels, variables);
  const int64_t batch = net.labels.shape()[0];
  session.input<float>(net.rate)[0] = 1e-2f;
  Result result;
  for (int step = 0; step < kReplicaSteps; ++step) {
    const std::vector<float> images = random_floats(kBatch * 8, static_cast<uint64_t>(step));
    std::copy_n(images.begin() + rank * batch * 8, batch * 8, session.input<float>(net.x).begin());
    for (int64_t row = 0; row < batch; ++row)
      session.input<int32_t>(net.labels)[static_cast<size_t>(row)] =
          static_cast<int32_t>((rank * batch + row) % 3);
    session.run();
    result.losses.push_back(session.output<float>(net.loss)[0]);
    result.checksums.push_back(variables.checksum(net.parameters));
  }
  for (const Value& parameter : net.parameters) {
    const std::vector<float> values = read<float>(variables, parameter);
    result.weights.insert(result.weights.end(), values.begin(), values.end());
  }
  for (const int id : net.graph.variables()) {
    const ValueInfo& info = net.graph.value(id);
    if (info.name.ends_with("/m") || info.name.ends_with("/v")) result.optimizer_bytes += info.spec.bytes();
  }
  return result;
}

std::vector<Result> train_replicas(int replicas, PlanMode mode, const BucketSettings& buckets, bool sharded,
                                   Precision precision = Precision::kF32) {
  std::vector<Result> results(static_cast<size_t>(replicas));
  std::vector<std::thread> threads;
  for (auto& end : make_in_process_group(replicas)) {
    threads.emplace_back([&, host = std::move(end)] {
      const int rank = host->rank();
      CpuHarness cpu;
      StagedCollective collective(cpu.device, *host);
      const Shard shard = sharded ? Shard{rank, replicas} : Shard{};
      const Net net(kBatch / replicas, replicas, buckets, shard, precision);
      results[static_cast<size_t>(rank)] = train(net, mode, rank, cpu.device, *cpu.allocator, &collective);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(DataParallel, PlansAreFaultlessInEveryModeFusedOrNot) {
  for (const bool fused : {false, true}) {
    for (const BucketSettings& buckets : {BucketSettings{}, kOneEach}) {
      SmallNet net;
      if (fused) fuse(net.graph);
      reduce_gradients(net.graph, 3, buckets);
      const std::vector<int64_t> workspace = workspaces(net.graph, 1000);
      for (const PlanMode mode : kPlanModes) {
        const Plan plan = make_plan(net.graph, net.training(), mode, workspace);
        EXPECT_EQ(find_fault(net.graph, plan, workspace), std::nullopt) << to_string(mode);
      }
    }
  }
}

TEST(DataParallel, ReducesGradientsInPlaceAsSoonAsTheyAreMadeAndInOneOrder) {
  const Net net(4, 2, kOneEach);
  const std::vector<const Node*> reductions = nodes_of(net.graph, "all_reduce");
  ASSERT_EQ(reductions.size(), 3u);
  EXPECT_EQ(reductions[0]->inputs.size(), 1u);
  const Plan plan = make_plan(net.graph, {{net.loss}, true}, PlanMode::kDynamic, workspaces(net.graph, 0));
  for (size_t i = 0; i < 3; ++i) {
    const Node& node = *reductions[i];
    const auto gradient = static_cast<size_t>(node.inputs.back());
    EXPECT_EQ(plan.buffer_of_value[gradient], plan.buffer_of_value[static_cast<size_t>(node.outputs[0])]);
    if (i > 0) {
      EXPECT_EQ(node.inputs[0], reductions[i - 1]->outputs[0]);
    }
    const auto at = std::find_if(net.graph.nodes().begin(), net.graph.nodes().end(),
                                 [&](const Node& other) { return &other == &node; });
    EXPECT_EQ((at - 1)->outputs[0], node.inputs.back()) << "stands behind what makes its gradient";
  }
  const Node& update = *nodes_of(net.graph, "adam_update").front();
  EXPECT_EQ(std::get<AdamUpdate>(update.op).gradient_scale, 0.5f);
}

TEST(DataParallel, ABucketIsClosedByTheGradientThatFillsIt) {
  const int64_t w2 = 100 * 3 * 4, b1 = 100 * 4;  // the gradients come in the order w2, b1, w1
  EXPECT_EQ(nodes_of(Net(4, 2).graph, "all_reduce").size(), 1u);
  EXPECT_EQ(nodes_of(Net(4, 2, {w2, b1}).graph, "all_reduce").size(), 3u);
  const Net net(4, 2, {w2, b1 + 1});
  const std::vector<const Node*> reductions = nodes_of(net.graph, "all_reduce");
  ASSERT_EQ(reductions.size(), 2u);
  EXPECT_EQ(reductions[0]->outputs.size(), 1u);
  EXPECT_EQ(reductions[1]->outputs.size(), 2u);
}

TEST(DataParallel, ReplicasSumGradientsAsTheyAreStored) {
  const Net net(4, 2, kOneEach, {}, Precision::kBf16);
  for (const Node* node : nodes_of(net.graph, "all_reduce")) {
    const Shape& shape = net.graph.value(node->outputs[0]).spec.shape;
    const DType stored = shape.rank() == 2 ? DType::kBf16 : DType::kF32;
    EXPECT_EQ(net.graph.value(node->inputs.back()).spec, (TensorSpec{stored, shape}));
    EXPECT_EQ(net.graph.value(node->outputs[0]).spec, (TensorSpec{stored, shape}));
  }
  const std::vector<Result> whole = train_replicas(2, PlanMode::kPacked, {}, false);
  for (const bool sharded : {false, true}) {
    const auto results = train_replicas(2, PlanMode::kPacked, {}, sharded, Precision::kBf16);
    EXPECT_EQ(results[0].checksums, results[1].checksums);
    for (size_t step = 0; step < kReplicaSteps; ++step)
      EXPECT_NEAR(results[0].losses[step], whole[0].losses[step], 0.02f) << "step " << step;
  }
}

TEST(DataParallel, OneReplicaHasNoCollectiveNode) {
  const Net net(4, 1);
  EXPECT_TRUE(nodes_of(net.graph, "all_reduce").empty());
  EXPECT_TRUE(nodes_of(net.graph, "all_gather_update").empty());
}

// Four layers, the second on /GPU:1 and the third on /GPU:0 by name.
struct SpreadNet {
  Graph graph;
  Value loss;

  explicit SpreadNet(const BucketSettings& buckets) {
    graph.put_scope_on_device("b", "/GPU:1");
    graph.put_scope_on_device("c", "/GPU:0");
    Value y = graph.input("x", {DType::kF32, {4, 8}});
    const Value labels = graph.input("labels", {DType::kI32, {4}});
    const Value rate = graph.input("rate", {DType::kF32, {}});
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    std::vector<Value> parameters;
    for (const char* layer : {"a", "b", "c", "d"}) {
      const NameScope scope(graph, layer);
      parameters.push_back(graph.variable("w", {DType::kF32, {8, 8}}, glorot_uniform({8, 8}, 1)));
      y = relu(matmul(y, parameters.back()));
    }
    loss = mean(cross_entropy(y, labels));
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
    reduce_gradients(graph, 2, buckets);
  }
};

TEST(DataParallel, ANetOnSeveralDevicesHasBucketsAndAnOrderForEach) {
  const std::vector<DeviceName> devices = {{DeviceType::kGpu, 0}, {DeviceType::kGpu, 1}};
  for (const BucketSettings& buckets : {BucketSettings{}, kOneEach}) {
    SpreadNet net(buckets);
    place(net.graph, devices, {.allow_copies = true});
    std::map<std::string, std::vector<const Node*>> reductions;
    for (const Node* node : nodes_of(net.graph, "all_reduce")) reductions[node->device].push_back(node);
    ASSERT_EQ(reductions.size(), 2u);
    size_t on_first = 0;
    for (const auto& [device, nodes] : reductions) {
      for (size_t i = 0; i < nodes.size(); ++i) {
        const Node& node = *nodes[i];
        EXPECT_EQ(std::get<AllReduce>(node.op).follows, i > 0);
        if (i > 0) {
          EXPECT_EQ(node.inputs[0], nodes[i - 1]->outputs[0]);
        }
        if (device.empty()) on_first += node.outputs.size();
        // No tensor is copied before it is summed.
        for (const int input : node.inputs) {
          EXPECT_EQ(net.graph.value(input).device, device);
          EXPECT_EQ(net.graph.value(input).name.find("copy_to_device"), std::string::npos);
        }
      }
    }
    EXPECT_EQ(on_first, 3u) << "with those of the layer that names it";
    EXPECT_EQ(reductions[""].size(), buckets.bytes == 1 ? 3u : 1u);
    EXPECT_EQ(reductions["/device:GPU:1"].size(), 1u);
    const std::vector<int64_t> workspace = workspaces(net.graph, 1000);
    for (const PlanMode mode : kPlanModes) {
      const Plan plan = make_plan(net.graph, {{net.loss}, true}, mode, workspace);
      EXPECT_EQ(find_fault(net.graph, plan, workspace), std::nullopt) << to_string(mode);
    }
  }
}

TEST(DataParallel, RefusesInvalidReplicaCountsAndBuckets) {
  Net net(4, 1);
  EXPECT_THROW(reduce_gradients(net.graph, 0), InvalidArgument);
  EXPECT_THROW(reduce_gradients(net.graph, 2, {0, 1}), InvalidArgument);
  EXPECT_THROW(reduce_gradients(net.graph, 2, {1, -1}), InvalidArgument);
}

TEST(DataParallel, WeightsAreEqualAfterEveryStepAndTheLossIsThatOfTheWholeBatch) {
  CpuHarness cpu;
  const Net single(kBatch, 1);
  const Result whole = train(single, PlanMode::kPacked, 0, cpu.device, *cpu.allocator, nullptr);
  for (const PlanMode mode : kPlanModes) {
    for (const int replicas : {2, 3}) {
      const std::vector<Result> results = train_replicas(replicas, mode, kOneEach, false);
      for (size_t step = 0; step < kReplicaSteps; ++step) {
        float loss = 0;
        for (const Result& result : results) {
          EXPECT_EQ(result.checksums[step], results[0].checksums[step]) << "step " << step;
          loss += result.losses[step] / static_cast<float>(replicas);
        }
        EXPECT_NEAR(loss, whole.losses[step], 1e-5) << "step " << step;
      }
      for (size_t i = 0; i < whole.weights.size(); ++i)
        ASSERT_NEAR(results[0].weights[i], whole.weights[i], 1e-4) << i;
    }
  }
}

TEST(DataParallel, ShardedOptimizersGiveTheSameBitsWithAShareOfTheState) {
  const std::vector<Result> whole = train_replicas(3, PlanMode::kParallel, {}, false);
  const std::vector<Result> sharded = train_replicas(3, PlanMode::kParallel, {}, true);
  int64_t sum = 0;
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(sharded[rank].checksums, whole[rank].checksums);
    const int64_t bucket_bytes = (8 * 100 + 100 + 100 * 3) * 4;
    EXPECT_LE(sharded[rank].optimizer_bytes, whole[rank].optimizer_bytes / 3 + bucket_bytes);
    // Memory above an equal share: a block of elements for each of two states of three variables.
    EXPECT_LE(sharded[rank].optimizer_bytes, whole[rank].optimizer_bytes / 3 + 6 * 4 * kShardAlignment);
    sum += sharded[rank].optimizer_bytes;
  }
  EXPECT_EQ(sum, whole[0].optimizer_bytes);
}

TEST(DataParallel, ARankThatDiesInAnyOfItsCallsEndsAll) {
  int deaths = 0;
  for (bool has_died = true; has_died;) {
    has_died = false;
    try {
      run_replicas(2, kCollectiveTimeout, [&](int rank, std::unique_ptr<Collective> end) {
        if (rank == 1) {
          auto faulty = std::make_unique<FaultyCollective>(std::move(end));
          faulty->faults().arm({.failing_call = deaths + 1});
          end = std::move(faulty);
        }
        CpuHarness cpu;
        StagedCollective collective(cpu.device, *end);
        const Net net(kBatch / 2, 2, kOneEach, {rank, 2});
        train(net, PlanMode::kParallel, rank, cpu.device, *cpu.allocator, &collective);
      });
    } catch (const CollectiveError&) {
      has_died = true;
      ++deaths;
    }
  }
  EXPECT_EQ(deaths, kReplicaSteps * (3 + 2)) << "three buckets and a broadcast by each rank in every step";
}

TEST(DataParallel, AGraphForOtherReplicasIsRefusedAndWithoutThemItDoesNotRun) {
  CpuHarness cpu;
  const Net net(kBatch, 3);
  const auto group = make_in_process_group(2);
  StagedCollective collective(cpu.device, *group[0]);
  EXPECT_THROW(Kernels(net.graph, cpu.device, *cpu.allocator, {.collective = &collective}), InvalidArgument);
  EXPECT_THROW(train(net, PlanMode::kPacked, 0, cpu.device, *cpu.allocator, nullptr), InvalidArgument);
}

}  // namespace
}  // namespace headroom
