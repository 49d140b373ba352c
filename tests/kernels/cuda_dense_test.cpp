// Dense layers on a GPU against the CPU's.
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>

#include "tests/kernels/cuda_product.h"

namespace headroom::test {
namespace {

struct DenseCase {
  const char* name;
  int64_t m, n, k;
};

void PrintTo(const DenseCase& row, std::ostream* stream) {
  *stream << row.name;
}

class CudaDense : public CudaTableTest<DenseCase> {
 protected:
  // Compares each result with the CPU's, within the math's rounding of the sums' magnitudes.
  void expect_near(const Op& op, const std::vector<HostTensor>& operands, const Op& linear) const {
    std::vector<HostTensor> absolute;
    for (const HostTensor& operand : operands) absolute.push_back(magnitudes(operand));
    const std::vector<HostTensor> expected = run_op(op, operands), magnitude = run_op(linear, absolute);
    for (Math math : kEveryMath) {
      for (bool deterministic : {false, true}) {
        const std::vector<HostTensor> actual =
            run_on_cuda(*device, op, operands, {.math = math, .deterministic = deterministic});
        for (size_t r = 0; r < expected.size(); ++r) {
          for (int64_t i = 0; i < expected[r].elements(); ++i) {
            const double allowed = product_tolerance(math) * static_cast<double>(magnitude[r].data()[i]);
            ASSERT_NEAR(actual[r].data()[i], expected[r].data()[i], allowed + 1e-6)
                << "result " << r << ", element " << i << ", math " << static_cast<int>(math);
          }
        }
      }
    }
  }

  const DenseCase& c = GetParam();
  const HostTensor x = random_floats({c.m, c.k}, 1), w = random_floats({c.k, c.n}, 2);
  const HostTensor bias = random_floats({c.n}, 3), dy = random_floats({c.m, c.n}, 4);
};

TEST_P(CudaDense, ForwardAndGradientAgreeWithTheCpuInEveryMath) {
  expect_near(Dense{false}, {x, w, bias}, Dense{false});
  expect_near(Dense{true}, {x, w, bias}, Dense{false});
  expect_near(Dense{false}, {x, w, bias, dy}, Dense{false});
  expect_near(DenseFilterGrad{}, {x, dy}, DenseFilterGrad{});
}

TEST_P(CudaDense, NeedsNoWorkspaceWhereNoneIsAllowed) {
  const KernelSettings none{.workspace_limit_bytes = 0};
  EXPECT_EQ(workspace_bytes(*device, Dense{true}, {x, w, bias}, none), 0);
  EXPECT_EQ(workspace_bytes(*device, Dense{false}, {x, w, bias, dy}, none), 0);
  EXPECT_EQ(workspace_bytes(*device, DenseFilterGrad{}, {x, dy}, none), 0);
}

TEST_P(CudaDense, TheSameInputGivesTheSameBits) {
  const auto run = [&] { return run_on_cuda(*device, DenseFilterGrad{}, {x, dy}); };
  const std::vector<HostTensor> once = run(), again = run();
  EXPECT_TRUE(once[0].same_bytes(again[0]));
  EXPECT_TRUE(once[1].same_bytes(again[1]));
}

TEST_P(CudaDense, ANanReachesTheResult) {
  HostTensor broken = x;
  broken.data()[0] = std::nanf("");
  for (bool relu : {false, true}) {
    const HostTensor y = run_on_cuda(*device, Dense{relu}, {broken, w, bias})[0];
    for (int64_t i = 0; i < c.n; ++i) EXPECT_TRUE(std::isnan(y.data()[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, CudaDense,
                         testing::Values(DenseCase{"net_first", 64, 64, 576},
                                         DenseCase{"net_last", 64, 10, 64},
                                         DenseCase{"many_rows", 4096, 64, 576}, DenseCase{"odd", 37, 19, 65},
                                         DenseCase{"one", 1, 1, 1}, DenseCase{"wide", 130, 300, 40}),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace headroom::test
