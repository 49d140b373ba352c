// A program's own op on a GPU. Its kernel is copies of the driver, queued on the session's stream.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "base/errors.h"
#include "tests/kernels/cuda_run.h"
#include "tests/require_cuda.h"

namespace headroom::test {
namespace {

// x -> x, a tensor whose bytes are 7
const CustomOp kCopyAndFill = {
    .name = "copy_and_fill",
    .infer =
        [](const OpCheck& c) {
          c.count(1);
          return Outputs{c.input(0), c.input(0)};
        },
    .cpu =
        [](const KernelCall& call) {
          std::copy_n(call.in<uint8_t>(0), call.inputs[0].spec.bytes(), call.out<uint8_t>());
          std::fill_n(call.out<uint8_t>(1), call.inputs[0].spec.bytes(), uint8_t{7});
        },
    .cuda =
        [](const KernelCall& call) {
          auto* const stream = static_cast<cudaStream_t>(call.stream.handle);
          const auto bytes = static_cast<size_t>(call.inputs[0].spec.bytes());
          // By way of the workspace, so that it must be there.
          cudaMemcpyAsync(call.workspace, call.in(0), bytes, cudaMemcpyDeviceToDevice, stream);
          cudaMemcpyAsync(call.out(), call.workspace, bytes, cudaMemcpyDeviceToDevice, stream);
          if (cudaMemsetAsync(call.out(1), 7, bytes, stream) != cudaSuccess)
            throw std::runtime_error("memset");
        },
    .workspace_bytes = [](std::span<const TensorSpec> inputs) { return inputs[0].bytes(); },
};

class CudaCustomOp : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) device = make_cuda_device({});
  }
  std::unique_ptr<Device> device;
};

TEST_F(CudaCustomOp, RunsTheProgramsFunctionOnTheStreamAndInACapture) {
  const HostTensor x = random_floats({31, 7}, 1);
  const std::vector<HostTensor> expected = run_op(Custom(kCopyAndFill), {x});
  for (const bool recorded : {false, true}) {
    const std::vector<HostTensor> got =
        run_on_cuda(*device, Custom(kCopyAndFill), {x}, {}, {.recorded = recorded});
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(got[i].same_bytes(expected[i])) << i << " " << recorded;
  }
}

TEST_F(CudaCustomOp, WithoutAFunctionForTheGpuIsNamed) {
  CustomOp op = kCopyAndFill;
  op.cuda = nullptr;
  try {
    run_on_cuda(*device, Custom(op), {random_floats({4}, 1)});
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "copy_and_fill has no kernel for this device: its CustomOp has no function `cuda`");
  }
}

}  // namespace
}  // namespace headroom::test
