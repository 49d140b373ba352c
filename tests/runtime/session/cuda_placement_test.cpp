// A net over two real GPUs of one process: copies through the driver, in order with the work of both.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "device/gpus.h"
#include "runtime/app/place.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "tests/require_cuda.h"
#include "tests/runtime/session/harness.h"

namespace headroom {
namespace {

class CudaPlacementTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    if (visible_gpus().size() < 2) GTEST_SKIP() << "one GPU is visible, two are needed";
  }
};

// Losses of a few steps of three layers, the second on `device`, the others on the first GPU, and the weights
// at the end.
struct Steps {
  std::vector<float> losses;
  uint64_t checksum = 0;
  bool operator==(const Steps&) const = default;
};

Steps train_on(const char* device, PlanMode mode) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {64, 512}});
  const Value labels = graph.input("labels", {DType::kI32, {64}});
  const Value rate = graph.input("rate", {DType::kF32, {}});
  const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
  std::vector<Value> weights;
  const Value w1 = graph.variable("w1", {DType::kF32, {512, 512}}, glorot_uniform({512, 512}, 1));
  const Value hidden = relu(matmul(x, w1));
  const Value w3 = graph.variable("w3", {DType::kF32, {256, 256}}, glorot_uniform({256, 256}, 3));
  const Value there = [&] {
    const DeviceScope scope(graph, device);
    const Value w2 = graph.variable("w2", {DType::kF32, {512, 256}}, glorot_uniform({512, 256}, 2));
    weights.push_back(w2);
    return relu(matmul(to_device(hidden, device), w2));
  }();
  const Value loss = mean(cross_entropy(matmul(to_device(there, "/GPU:0"), w3), labels));
  weights.insert(weights.end(), {w1, w3});
  add_updates(Adam{}, weights, gradients(loss, weights), rate, step);

  Runtime runtime({.device = "cuda"});
  const DeviceSet devices = place(graph, runtime);
  Variables variables(graph, devices);
  Session session(graph, {{loss}, true}, mode, variables);
  EXPECT_EQ(session.not_captured_because().empty(), std::string_view(device) != "/CPU:0");
  Steps steps;
  for (int i = 0; i < 5; ++i) {
    const std::vector<float> values = random_floats(64 * 512, static_cast<uint64_t>(i));
    std::copy(values.begin(), values.end(), session.input<float>(x).begin());
    for (int32_t& label : session.input<int32_t>(labels)) label = i;
    session.input<float>(rate)[0] = 1e-3f;
    session.run(i == 4 ? 40 : 1);
    steps.losses.push_back(session.output<float>(loss)[0]);
  }
  steps.checksum = variables.checksum(weights);
  return steps;
}

TEST_F(CudaPlacementTest, ALayerOnTheSecondGpuGivesTheBitsOfOneGpu) {
  const Steps expected = train_on("", PlanMode::kPacked);
  for (const PlanMode mode : kPlanModes) {
    EXPECT_EQ(train_on("/GPU:1", mode), expected) << to_string(mode);
  }
}

// A dynamic plan runs node by node; the others are captured after the first step.
TEST_F(CudaPlacementTest, OneGraphOfTwoGpusGivesTheBitsOfNodeByNode) {
  const Steps expected = train_on("/GPU:1", PlanMode::kDynamic);
  EXPECT_EQ(train_on("/GPU:1", PlanMode::kPacked), expected);
  EXPECT_EQ(train_on("/GPU:1", PlanMode::kParallel), expected);
}

TEST_F(CudaPlacementTest, ALayerOnTheCpuComesWithinRounding) {
  const Steps expected = train_on("", PlanMode::kPacked), mixed = train_on("/CPU:0", PlanMode::kPacked);
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(mixed.losses[i], expected.losses[i], 0.02F) << "step " << i;
  }
}

TEST_F(CudaPlacementTest, ACopyWaitsForTheWriterAndTheNextWriterForTheCopy) {
  Runtime runtime({.device = "cuda"});
  Device &first = runtime.device("/GPU:0"), &second = runtime.device("/GPU:1");
  constexpr int64_t kBytes = int64_t{64} << 20;
  void* const from = runtime.allocator("/GPU:0").allocate(kBytes);
  void* const to = runtime.allocator("/GPU:1").allocate(kBytes);
  std::vector<unsigned char> host(kBytes);
  for (int turn = 1; turn <= 4; ++turn) {
    std::fill(host.begin(), host.end(), static_cast<unsigned char>(turn));
    first.memory().copy_to_device(from, host.data(), kBytes);
    copy_between(first, from, second, to, kBytes);
  }
  second.streams().synchronize({});
  second.memory().copy_to_host(host.data(), to, kBytes);
  EXPECT_EQ(host, std::vector<unsigned char>(kBytes, 4));
  runtime.allocator("/GPU:0").deallocate(from, kBytes);
  runtime.allocator("/GPU:1").deallocate(to, kBytes);
}

}  // namespace
}  // namespace headroom
