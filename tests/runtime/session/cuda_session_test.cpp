// Sessions on a real GPU: captured steps against single launches of the same kernels.

#include <memory>

#include "base/errors.h"
#include "device/gpus.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "tests/require_cuda.h"
#include "tests/runtime/session/harness.h"

namespace headroom {
namespace {

// Two dense layers over rows of a table, trained: branches in the backward pass, a row that can be missing.
struct CudaDenseNet {
  static constexpr int64_t kBatch = 32, kRows = 100, kIn = 48, kHidden = 64, kOut = 10;
  Graph graph;
  Value rows = graph.input("rows", {DType::kI32, {kBatch}});
  Value labels = graph.input("labels", {DType::kI32, {kBatch}});
  Value rate = graph.input("rate", {DType::kF32, {}});
  Value step, loss;
  std::vector<Value> parameters;

  CudaDenseNet() {
    const auto weights = [&](const char* name, const Shape& shape) {
      return graph.variable(name, {DType::kF32, shape}, glorot_uniform(shape, 1));
    };
    const Value table = weights("table", {kRows, kIn});
    const Value w1 = weights("w1", {kIn, kHidden}), w2 = weights("w2", {kHidden, kOut});
    const Value b1 = graph.variable("b1", {DType::kF32, {kHidden}}, zeros());
    const Value b2 = graph.variable("b2", {DType::kF32, {kOut}}, zeros());
    step = graph.variable("step", {DType::kI32, {}}, zeros());
    parameters = {w1, b1, w2, b2};
    const Value hidden = relu(bias(matmul(gather(table, rows), w1), b1));
    loss = mean(cross_entropy(bias(matmul(hidden, w2), b2), labels));
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
  }
  Targets training() const { return {{loss}, true}; }
  void feed(Session& session) const {
    for (int i = 0; i < kBatch; ++i) {
      session.input<int32_t>(rows)[static_cast<size_t>(i)] = 3 * i;
      session.input<int32_t>(labels)[static_cast<size_t>(i)] = i % static_cast<int>(kOut);
    }
    session.input<float>(rate)[0] = 1e-2f;
  }
};

class CudaSessionTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    device_ = make_cuda_device({});
    allocator_ = make_allocator({.name = "allow-growth"}, *device_);
    kernels_ = std::make_shared<const Kernels>(net_.graph, *device_, *allocator_);
  }
  Plan plan(PlanMode mode) const {
    return make_plan(net_.graph, net_.training(), mode, kernels_->workspace_bytes());
  }
  // Weights and loss after that many steps, in one run or in as many.
  std::pair<uint64_t, float> train(PlanMode mode, int64_t steps, bool at_once) {
    Variables variables(net_.graph, *device_, *allocator_);
    Session session(net_.graph, plan(mode), kernels_, variables);
    net_.feed(session);
    for (int64_t run = 0; run < (at_once ? 1 : steps); ++run) session.run(at_once ? steps : 1);
    EXPECT_EQ(read<int32_t>(variables, net_.step)[0], steps);
    return {variables.checksum(net_.parameters), session.output<float>(net_.loss)[0]};
  }

  CudaDenseNet net_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Allocator> allocator_;
  std::shared_ptr<const Kernels> kernels_;
};

TEST_F(CudaSessionTest, CapturedStepsGiveTheSameBitsAsSingleLaunches) {
  for (int64_t steps : {1, 2, 20, 40}) {
    const auto expected = train(PlanMode::kDynamic, steps, false);
    for (PlanMode mode : kPlanModes) {
      for (bool at_once : {false, true}) {
        EXPECT_EQ(train(mode, steps, at_once), expected) << to_string(mode) << " " << steps << " " << at_once;
      }
    }
  }
}

TEST_F(CudaSessionTest, TheLossFalls) {
  EXPECT_LT(train(PlanMode::kParallel, 50, true).second, 0.5f * train(PlanMode::kParallel, 1, true).second);
}

TEST_F(CudaSessionTest, CapturedStepsCallNoAllocator) {
  for (PlanMode mode : {PlanMode::kPacked, PlanMode::kParallel}) {
    Variables variables(net_.graph, *device_, *allocator_);
    Session session(net_.graph, plan(mode), kernels_, variables);
    net_.feed(session);
    const int64_t calls = allocator_->statistics().allocations;
    session.run(40);
    EXPECT_EQ(allocator_->statistics().allocations, calls) << to_string(mode);
  }
}

TEST_F(CudaSessionTest, AFaultInTheDataIsADeviceErrorThatChangesNoVariable) {
  for (PlanMode mode : kPlanModes) {
    Variables variables(net_.graph, *device_, *allocator_);
    Session session(net_.graph, plan(mode), kernels_, variables);
    net_.feed(session);
    for (int run = 0; run < 3; ++run) {  // launched one by one, captured, replayed
      const uint64_t before = variables.checksum(net_.parameters);
      session.input<int32_t>(net_.rows)[5] = CudaDenseNet::kRows;
      EXPECT_THROW(session.run(), DeviceError) << to_string(mode);
      EXPECT_EQ(variables.checksum(net_.parameters), before) << to_string(mode);
      session.input<int32_t>(net_.rows)[5] = 7;
      EXPECT_NO_THROW(session.run()) << to_string(mode);
      EXPECT_EQ(read<int32_t>(variables, net_.step)[0], run + 1);
    }
    session.input<int32_t>(net_.rows)[5] = -1;
    EXPECT_THROW(session.run(40), DeviceError) << to_string(mode);
    session.input<int32_t>(net_.rows)[5] = 7;
    EXPECT_NO_THROW(session.run(40)) << to_string(mode);
  }
}

}  // namespace
}  // namespace headroom
