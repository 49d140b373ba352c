// Tests the choice of algorithms on a GPU: from the cache, within a limit, and without room to time any.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/files.h"
#include "kernels/cuda/library/algorithm_cache.h"
#include "tests/kernels/cuda_product.h"
#include "tests/scratch_folder.h"

namespace headroom::test {
namespace {

class CudaAlgorithms : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    setenv("HEADROOM_ALGORITHM_CACHE", path.c_str(), 1);
    device = make_cuda_device({});
  }
  void TearDown() override { setenv("HEADROOM_ALGORITHM_CACHE", "off", 1); }

  cuda::AlgorithmTable kept() const { return cuda::parse_algorithms(read_file(path, int64_t{1} << 20)); }
  // A convolution for which cuDNN trades workspace for time in f32.
  int64_t workspace_of_conv(int64_t limit_bytes = int64_t{256} << 20) const {
    const std::vector<HostTensor> inputs = {x, filter};
    return workspace_bytes(*device, Conv2d{}, inputs,
                           {.math = Math::kF32, .workspace_limit_bytes = limit_bytes});
  }

  const ScratchFolder folder;
  const std::string path = folder / "algorithms.json";
  const HostTensor x = random_floats({64, 13, 13, 32}, 1), filter = random_floats({3, 3, 32, 64}, 2);
  std::unique_ptr<Device> device;
};

TEST_F(CudaAlgorithms, UsesAKeptChoiceWithoutTiming) {
  workspace_of_conv();
  const cuda::AlgorithmTable measured = kept();
  ASSERT_EQ(measured.size(), 1u);
  const auto& [problem, algorithms] = *measured.begin();
  ASSERT_GE(algorithms.choices.size(), 2u);
  // Pretends that the leanest is the only one: a new timing finds the fastest.
  const cuda::AlgorithmSet leanest{algorithms.limit_bytes, {algorithms.choices.back()}};
  cuda::keep_algorithms(path, problem, leanest);
  EXPECT_EQ(workspace_of_conv(), algorithms.choices.back().workspace_bytes);
  EXPECT_EQ(kept(), (cuda::AlgorithmTable{{problem, leanest}}));
}

TEST_F(CudaAlgorithms, ALowerLimitTakesAnotherKeptChoice) {
  const int64_t fastest = workspace_of_conv();
  const cuda::AlgorithmTable measured = kept();
  const int64_t lean = workspace_of_conv(fastest - 1);
  EXPECT_EQ(lean, measured.begin()->second.choices.at(1).workspace_bytes);
  EXPECT_EQ(kept(), measured);
}

TEST_F(CudaAlgorithms, TimesAgainWhereTheLibraryDoesNotKnowTheChoice) {
  const int64_t workspace = workspace_of_conv();
  const cuda::AlgorithmTable measured = kept();
  const std::string& problem = measured.begin()->first;
  for (const char* algorithm :
       {"", "f32 engine 9999 knobs", "f32 engine 0 knobs 9999:1", "f32 engine -1 knobs"}) {
    cuda::keep_algorithms(path, problem, {int64_t{256} << 20, {{algorithm, 1, 0}}});
    EXPECT_LE(workspace_of_conv(), int64_t{256} << 20) << algorithm;
    EXPECT_NE(kept().at(problem).choices[0].algorithm, algorithm);
  }
  EXPECT_GT(workspace, 0);
}

TEST_F(CudaAlgorithms, MakesTheKernelWithoutRoomToTimeAlgorithms) {
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
