// Holds sums of products on a GPU to the CPU's, in every math mode.
#pragma once

#include <cmath>
#include <cstdlib>
#include <vector>

#include "tests/kernels/cuda_run.h"
#include "tests/require_cuda.h"

namespace headroom::test {

inline constexpr Math kEveryMath[] = {Math::kF32, Math::kTf32, Math::kBf16, Math::kF16};

// Returns the allowed difference of a sum of products from the CPU's, as a share of the sum of the products'
// magnitudes.
inline double product_tolerance(Math math) {
  switch (math) {
    case Math::kF32:  // some hundred roundings of 2^-24, which partly cancel
      return 2e-6;
    case Math::kTf32:  // both operands cut to 10 bits
    case Math::kF16:   // both operands rounded to 10 bits
      return 2 * 0x1p-10;
    case Math::kBf16:  // both operands rounded to 7 bits
      return 2 * 0x1p-8;
  }
  return 0;
}

// Returns the tensor without signs: an op that is linear in each operand then gives the magnitudes of its
// sums.
inline HostTensor magnitudes(const HostTensor& tensor) {
  HostTensor result = tensor;
  for (int64_t i = 0; i < result.elements(); ++i) result.data()[i] = std::abs(result.data()[i]);
  return result;
}

// Expects the GPU's result of `op`, which is linear in both inputs, to equal the CPU's within the math's
// rounding.
inline void expect_product(Device& device, const Op& op, const std::vector<HostTensor>& inputs,
                           const KernelSettings& settings) {
  const HostTensor expected = run_op(op, inputs)[0];
  const HostTensor magnitude = run_op(op, {magnitudes(inputs[0]), magnitudes(inputs[1])})[0];
  const HostTensor actual = run_on_cuda(device, op, inputs, settings)[0];
  ASSERT_EQ(actual.spec(), expected.spec());
  for (int64_t i = 0; i < expected.elements(); ++i) {
    // Numbers near 0 lose f16's relative precision: half its smallest step, times operands below 2.
    const double allowed = product_tolerance(settings.math) * static_cast<double>(magnitude.data()[i]) + 1e-6;
    ASSERT_NEAR(actual.data()[i], expected.data()[i], allowed)
        << op_name(op) << " element " << i << " math " << static_cast<int>(settings.math);
  }
}

inline int64_t workspace_bytes(Device& device, const Op& op, const std::vector<HostTensor>& inputs,
                               const KernelSettings& settings) {
  const std::vector<TensorSpec> specs = specs_of(inputs);
  return make_cuda_kernel(op, specs, infer_outputs(op, specs), device, settings)->workspace_bytes();
}

// The fixture of tests over a table of rows. No algorithms are kept: deterministic kernels take the library's
// best guess, the others the fastest algorithm, so that a test can try both.
template <typename Row>
class CudaTableTest : public testing::TestWithParam<Row> {
 protected:
  void SetUp() override {
    require_cuda();
    if (testing::Test::IsSkipped() || testing::Test::HasFatalFailure()) return;
    setenv("HEADROOM_ALGORITHM_CACHE", "off", 1);
    device = make_cuda_device({});
  }
  std::unique_ptr<Device> device;
};

}  // namespace headroom::test
