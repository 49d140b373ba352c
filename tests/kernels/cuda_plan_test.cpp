// How plans are chosen on a GPU: from what is kept, within a limit, and without room to time any.
#include <gtest/gtest.h>

#include "kernels/cuda/library/plan_cache.h"
#include "runtime/base/files.h"
#include "tests/kernels/cuda_product.h"
#include "tests/scratch_folder.h"

namespace headroom::test {
namespace {

class CudaPlans : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    setenv("HEADROOM_PLAN_CACHE", path.c_str(), 1);
    device = make_cuda_device({});
  }
  void TearDown() override { setenv("HEADROOM_PLAN_CACHE", "off", 1); }

  cuda::PlanTable kept() const { return cuda::parse_plans(read_file(path, int64_t{1} << 20)); }
  // A convolution for which cuDNN trades workspace for time in f32.
  int64_t workspace_of_conv(int64_t limit_bytes = int64_t{256} << 20) const {
    const std::vector<HostTensor> inputs = {x, filter};
    return workspace_bytes(*device, Conv2d{}, inputs,
                           {.math = Math::kF32, .workspace_limit_bytes = limit_bytes});
  }

  const ScratchFolder folder;
  const std::string path = folder / "plans.json";
  const HostTensor x = random_floats({64, 13, 13, 32}, 1), filter = random_floats({3, 3, 32, 64}, 2);
  std::unique_ptr<Device> device;
};

TEST_F(CudaPlans, AKeptChoiceIsTakenWithoutTiming) {
  workspace_of_conv();
  const cuda::PlanTable measured = kept();
  ASSERT_EQ(measured.size(), 1u);
  const auto& [problem, plans] = *measured.begin();
  ASSERT_GE(plans.choices.size(), 2u);
  // As if the leanest were the only one: whoever times again finds the fastest.
  const cuda::PlanSet leanest{plans.limit_bytes, {plans.choices.back()}};
  cuda::keep_plans(path, problem, leanest);
  EXPECT_EQ(workspace_of_conv(), plans.choices.back().workspace_bytes);
  EXPECT_EQ(kept(), (cuda::PlanTable{{problem, leanest}}));
}

TEST_F(CudaPlans, ALowerLimitTakesAnotherKeptChoice) {
  const int64_t fastest = workspace_of_conv();
  const cuda::PlanTable measured = kept();
  const int64_t lean = workspace_of_conv(fastest - 1);
  EXPECT_EQ(lean, measured.begin()->second.choices.at(1).workspace_bytes);
  EXPECT_EQ(kept(), measured);
}

TEST_F(CudaPlans, AChoiceThatTheLibraryDoesNotKnowIsMeasuredAnew) {
  const int64_t workspace = workspace_of_conv();
  const cuda::PlanTable measured = kept();
  const std::string& problem = measured.begin()->first;
  for (const char* plan : {"", "f32 engine 9999 knobs", "f32 engine 0 knobs 9999:1", "f32 engine -1 knobs"}) {
    cuda::keep_plans(path, problem, {int64_t{256} << 20, {{plan, 1, 0}}});
    EXPECT_LE(workspace_of_conv(), int64_t{256} << 20) << plan;
    EXPECT_NE(kept().at(problem).choices[0].plan, plan);
  }
  EXPECT_GT(workspace, 0);
}

TEST_F(CudaPlans, WithoutRoomToTimePlansTheKernelIsMadeAllTheSame) {
  const std::vector<HostTensor> small = {x, filter};
  run_on_cuda(*device, Conv2d{}, small);  // the libraries have started
  const std::vector<TensorSpec> inputs = {{DType::kF32, {4096, 13, 13, 32}}, {DType::kF32, {3, 3, 32, 64}}};
  // Its operands take 207 MiB, which are not left.
  constexpr int64_t kLeft = int64_t{150} << 20;
  const int64_t held = device->memory().info().free - kLeft;
  void* rest = device->memory().try_allocate(held);
  ASSERT_NE(rest, nullptr);
  const size_t problems = kept().size();
  EXPECT_NO_THROW(make_cuda_kernel(Conv2d{}, inputs, infer_outputs(Conv2d{}, inputs), *device, {}));
  device->memory().release(rest, held);
  EXPECT_EQ(kept().size(), problems) << "what was not timed is not kept";
}

}  // namespace
}  // namespace headroom::test
