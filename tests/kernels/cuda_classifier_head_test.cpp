// The fused head of a classifier on a GPU against the CPU's, in every math mode.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "tests/kernels/cuda_run.h"
#include "tests/require_cuda.h"

namespace headroom::test {
namespace {

struct HeadCase {
  int64_t rows, terms, hidden, classes;
};

// The conv net's, one row, many turns of the blocks, the largest and smallest extents, several rows a tile.
const HeadCase kCases[] = {{64, 576, 64, 10}, {1, 16, 16, 1},   {4099, 64, 64, 10},
                           {70, 48, 128, 32}, {13, 160, 32, 5}, {2500, 576, 64, 10}};

std::vector<HostTensor> inputs_of(const HeadCase& c) {
  // Weights so small that sums stay near 1, as in a trained net.
  const float w1 = 1 / std::sqrt(static_cast<float>(c.terms)),
              w2 = 1 / std::sqrt(static_cast<float>(c.hidden));
  return {random_floats({c.rows, c.terms}, 1),
          random_floats({c.terms, c.hidden}, 2, -w1, w1),
          random_floats({c.hidden}, 3, -1, 1),
          random_floats({c.hidden, c.classes}, 4, -w2, w2),
          random_floats({c.classes}, 5, -1, 1),
          random_whole<int32_t>({c.rows}, 6, 0, static_cast<int>(c.classes)),
          random_floats({c.rows}, 7, 0, 1)};
}

class CudaClassifierHead : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    device_ = make_cuda_device({});
    device_->initialize();
  }
  std::unique_ptr<Device> device_;
};

TEST_F(CudaClassifierHead, GivesTheCpusResultsInEveryModeAndTheSameBitsAgain) {
  // Error from rounding two factors in sums of some size: the terms' rounding errors mostly cancel.
  const std::pair<Math, double> modes[] = {
      {Math::kF32, 2e-5}, {Math::kTf32, 4e-3}, {Math::kBf16, 3e-2}, {Math::kF16, 4e-3}};
  for (const HeadCase& c : kCases) {
    const std::vector<HostTensor> inputs = inputs_of(c);
    const std::vector<HostTensor> expected = run_op(ClassifierHead{}, inputs);
    for (const auto& [math, tolerance] : modes) {
      KernelSettings settings;
      settings.math = math;
      const std::vector<HostTensor> actual = run_on_cuda(*device_, ClassifierHead{}, inputs, settings);
      const std::vector<HostTensor> again = run_on_cuda(*device_, ClassifierHead{}, inputs, settings);
      int64_t far = 0;
      for (size_t output = 0; output < expected.size(); ++output) {
        EXPECT_TRUE(actual[output].same_bytes(again[output]));
        for (int64_t i = 0; i < expected[output].elements(); ++i) {
          const double want = static_cast<double>(expected[output].data()[i]);
          const double got = static_cast<double>(actual[output].data()[i]);
          const bool near = std::abs(got - want) <= tolerance * std::max(1.0, std::abs(want));
          if (!near && output >= 4) ++far;
          if (output < 4) {
            ASSERT_TRUE(near) << output << " " << i << ": " << got << " for " << want;
          }
        }
      }
      // If relu opens or closes within rounding, a hidden unit's gradient may be present or absent.
      const int64_t most = math == Math::kF32 ? 0 : expected[4].elements() / 50 + expected[5].elements() / 50;
      EXPECT_LE(far, most) << c.rows << " rows, mode " << static_cast<int>(math);
    }
  }
}

TEST_F(CudaClassifierHead, ReportsALabelOutsideTheClasses) {
  std::vector<HostTensor> inputs = inputs_of(kCases[0]);
  inputs[5].data<int32_t>()[7] = 10;
  inputs[5].data<int32_t>()[3] = -1;
  std::string on_cpu, on_gpu;
  try {
    run_op(ClassifierHead{}, inputs);
  } catch (const DeviceError& error) {
    on_cpu = error.what();
  }
  try {
    run_on_cuda(*device_, ClassifierHead{}, inputs);
  } catch (const DeviceError& error) {
    on_gpu = error.what();
  }
  EXPECT_NE(on_cpu.find("label -1 at position 3"), std::string::npos) << on_cpu;
  EXPECT_EQ(on_gpu, on_cpu);
}

}  // namespace
}  // namespace headroom::test
