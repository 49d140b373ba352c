// Convolutions through cuDNN against the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/conv_cases.h"
#include "tests/kernels/cuda_product.h"

namespace headroom::test {
namespace {

class CudaConvTest : public CudaTableTest<ConvCase> {
 protected:
  struct Row {
    Op op;
    std::vector<HostTensor> inputs;
  };
  std::vector<Row> directions() const {
    return {{c.conv, {x, filter}},
            {Conv2dInputGrad{c.conv, c.x}, {dy, filter}},
            {Conv2dFilterGrad{c.conv, c.filter}, {x, dy}},
            {by_result, {x, turned}},
            {Conv2dInputGrad{by_result, c.x}, {dy, turned}},
            {Conv2dFilterGrad{by_result, turned.spec().shape}, {x, dy}}};
  }

  const ConvCase& c = GetParam();
  const Conv2d by_result = with_filter_by_result(c.conv);
  HostTensor x = random_floats(c.x, 1), filter = random_floats(c.filter, 2),
             turned = filter_by_result(filter);
  HostTensor dy = random_floats(infer_outputs(c.conv, specs_of({x, filter}))[0].shape, 4);
};

TEST_P(CudaConvTest, ForwardAndBothGradientsAgreeWithTheCpuInEveryMath) {
  for (const Row& row : directions()) {
    for (Math math : kEveryMath) {
      for (bool deterministic : {false, true})
        expect_product(*device, row.op, row.inputs, {.math = math, .deterministic = deterministic});
    }
  }
}

TEST_P(CudaConvTest, StaysBelowALowWorkspaceLimit) {
  // Enough for a filter in another layout, far less than unfolded images take.
  const KernelSettings low{.workspace_limit_bytes = int64_t{256} << 10};
  for (const Row& row : directions()) {
    EXPECT_LE(workspace_bytes(*device, row.op, row.inputs, low), low.workspace_limit_bytes);
    expect_product(*device, row.op, row.inputs, low);
  }
}

TEST_P(CudaConvTest, AForwardPassEqualsItsParts) {
  const HostTensor bias = random_floats({c.filter[3]}, 3);
  const auto run = [&](const Op& op, const std::vector<HostTensor>& inputs) {
    return run_on_cuda(*device, op, inputs)[0];
  };
  const HostTensor got = run(ConvBias{by_result, true}, {x, turned, bias, dy});
  const HostTensor biased = run(Binary{BinaryKind::kAdd}, {run(c.conv, {x, filter}), bias});
  const HostTensor expected = run(Unary{UnaryKind::kRelu}, {run(Binary{BinaryKind::kAdd}, {biased, dy})});
  // The two may have chosen different algorithms.
  ASSERT_EQ(got.spec(), expected.spec());
  for (int64_t i = 0; i < got.elements(); ++i)
    ASSERT_NEAR(got.data()[i], expected.data()[i], 1e-4f * std::max(1.0f, std::abs(expected.data()[i])));
}

TEST_P(CudaConvTest, TheSameInputGivesTheSameBits) {
  for (const Row& row : directions()) {
    const auto run = [&] { return run_on_cuda(*device, row.op, row.inputs, {.math = Math::kTf32})[0]; };
    const HostTensor once = run();
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(once.same_bytes(run())) << op_name(row.op);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaConvTest, testing::ValuesIn(kConvCases),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace headroom::test
