// Matrix products on a GPU against the CPU's.
#include <gtest/gtest.h>

#include "tests/kernels/cuda_product.h"
#include "tests/kernels/kernel_cases.h"

namespace headroom::test {
namespace {

std::vector<KernelCase> matmul_cases() {
  std::vector<KernelCase> cases;
  add_matmul_and_pool_cases(cases);
  std::erase_if(cases, [](const KernelCase& row) { return !std::holds_alternative<MatMul>(row.op); });
  const auto add = [&](const std::string& name, MatMul op, const Shape& a, const Shape& b) {
    cases.push_back({name, op, {random_floats(a, 1), random_floats(b, 2)}});
  };
  add("dense", {}, {64, 576}, {576, 64});
  add("dense_input_grad", {false, true}, {64, 64}, {576, 64});
  add("dense_filter_grad", {true, false}, {512, 576}, {512, 64});
  add("ten_columns", {}, {512, 64}, {64, 10});
  add("nothing_to_sum", {}, {3, 0}, {0, 4});
  add("no_rows", {}, {0, 5}, {5, 4});
  add("no_batch", {}, {0, 3, 5}, {0, 5, 4});
  return cases;
}

class CudaMatMulTest : public CudaTableTest<KernelCase> {
 protected:
  const KernelCase& row = GetParam();
};

TEST_P(CudaMatMulTest, AgreesWithTheCpuInEveryMath) {
  for (Math math : kEveryMath) {
    for (bool deterministic : {false, true})
      expect_product(*device, row.op, row.inputs, {.math = math, .deterministic = deterministic});
  }
}

TEST_P(CudaMatMulTest, NeedsNoWorkspaceWhereNoneIsAllowed) {
  const KernelSettings none{.workspace_limit_bytes = 0};
  EXPECT_EQ(workspace_bytes(*device, row.op, row.inputs, none), 0);
  expect_product(*device, row.op, row.inputs, none);
}

TEST_P(CudaMatMulTest, TheSameInputGivesTheSameBits) {
  for (Math math : {Math::kF32, Math::kTf32}) {
    const auto run = [&] { return run_on_cuda(*device, row.op, row.inputs, {.math = math})[0]; };
    const HostTensor once = run();
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(once.same_bytes(run()));
  }
}

INSTANTIATE_TEST_SUITE_P(Table, CudaMatMulTest, testing::ValuesIn(matmul_cases()),
                         [](const auto& row) { return row.param.name + "_row" + std::to_string(row.index); });

}  // namespace
}  // namespace headroom::test
