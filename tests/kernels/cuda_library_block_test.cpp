// Convolution blocks from libraries and the kernels around them, against the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/conv_cases.h"
#include "tests/kernels/cuda_product.h"

namespace headroom::test {
namespace {

class CudaLibraryBlock : public CudaTableTest<ConvCase> {
 protected:
  // Runs with f32 precision, so that the CPU's maximum is the GPU's.
  std::vector<HostTensor> on_gpu(const Op& wanted, const std::vector<HostTensor>& operands,
                                 int64_t workspace_limit_bytes = int64_t{256} << 20) const {
    const KernelSettings settings{
        .math = Math::kF32, .library_only = true, .workspace_limit_bytes = workspace_limit_bytes};
    return run_on_cuda(*device, wanted, operands, settings);
  }
  // 1e-4 of the larger of 1 and the value: sums of some hundred products, some of which cancel.
  static void expect_close(const HostTensor& actual, const HostTensor& expected) {
    ASSERT_EQ(actual.spec(), expected.spec());
    for (int64_t i = 0; i < expected.elements(); ++i) {
      const float value = expected.data()[i];
      ASSERT_NEAR(actual.data()[i], value, 1e-4f * std::max(1.0f, std::abs(value))) << "element " << i;
    }
  }

  const ConvCase& c = GetParam();
  const ConvBlock op{c.conv, c.pool};
  const std::vector<HostTensor> inputs = {random_floats(c.x, 1), random_floats(c.filter, 2),
                                          random_floats({c.filter[3]}, 3)};
  const std::vector<HostTensor> block = run_op(op, inputs);
  const HostTensor dy = random_floats(block[0].spec().shape, 5);
  const HostTensor& route = c.pool ? block[1] : block[0];
};

TEST_P(CudaLibraryBlock, GivesTheCpusResultAndIndex) {
  const std::vector<HostTensor> actual = on_gpu(op, inputs);
  ASSERT_EQ(actual.size(), block.size());
  expect_close(actual[0], block[0]);
  // Two positions within rounding of each other may change places; random numbers have none here.
  if (c.pool) {
    EXPECT_TRUE(actual[1].same_bytes(block[1]));
  }
}

TEST_P(CudaLibraryBlock, GivesTheCpusGradientsAndTheSameBitsAgain) {
  const ConvBlockInputGrad dx{op, c.x};
  const ConvBlockFilterGrad dw{op, c.filter};
  const std::vector<HostTensor> for_dx = {dy, route, inputs[1]}, for_dw = {inputs[0], dy, route};
  const std::vector<HostTensor> actual_dx = on_gpu(dx, for_dx), actual_dw = on_gpu(dw, for_dw);
  expect_close(actual_dx[0], run_op(dx, for_dx)[0]);
  const std::vector<HostTensor> expected = run_op(dw, for_dw);
  expect_close(actual_dw[0], expected[0]);
  expect_close(actual_dw[1], expected[1]);
  EXPECT_TRUE(on_gpu(dx, for_dx)[0].same_bytes(actual_dx[0]));
  EXPECT_TRUE(on_gpu(dw, for_dw)[0].same_bytes(actual_dw[0]));
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaLibraryBlock, testing::ValuesIn(kConvCases),
                         [](const auto& row) { return std::string(row.param.name); });

// So little workspace that a few images at a time fit, and the last slice is smaller.
class CudaSlicedBlock : public CudaLibraryBlock {};

TEST_P(CudaSlicedBlock, GivesTheSameInSlicesWithinTheLimit) {
  constexpr int64_t kLimit = int64_t{1} << 20;
  const KernelSettings settings{.math = Math::kF32, .library_only = true, .workspace_limit_bytes = kLimit};
  const ConvBlockInputGrad dx{op, c.x};
  const ConvBlockFilterGrad dw{op, c.filter};
  const std::vector<HostTensor> for_dx = {dy, route, inputs[1]}, for_dw = {inputs[0], dy, route};
  EXPECT_LE(workspace_bytes(*device, op, inputs, settings), kLimit);
  EXPECT_LE(workspace_bytes(*device, dx, for_dx, settings), kLimit);
  EXPECT_LE(workspace_bytes(*device, dw, for_dw, settings), kLimit);
  expect_close(on_gpu(op, inputs, kLimit)[0], block[0]);
  expect_close(on_gpu(dx, for_dx, kLimit)[0], run_op(dx, for_dx)[0]);
  const std::vector<HostTensor> grads = on_gpu(dw, for_dw, kLimit), expected = run_op(dw, for_dw);
  expect_close(grads[0], expected[0]);
  expect_close(grads[1], expected[1]);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaSlicedBlock,
    testing::Values(
        ConvCase{"pooled", {31, 13, 13, 8}, {3, 3, 8, 32}, {}, Pool2d{}},
        ConvCase{"not_pooled", {31, 13, 13, 8}, {3, 3, 8, 32}, {{1, 1}, {1, 1}, {1, 1}, 1}, std::nullopt}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace headroom::test
