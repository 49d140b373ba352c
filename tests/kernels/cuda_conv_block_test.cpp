// Convolution blocks and their gradients on a GPU against the CPU's, over shapes and math modes.
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <tuple>

#include "tests/kernels/cuda_run.h"
#include "tests/require_cuda.h"

namespace headroom::test {
namespace {

struct BlockCase {
  const char* name;
  Shape x, filter;
  Pair padding;
  bool pooled;
};

// The case's name where GoogleTest names one that failed.
void PrintTo(const BlockCase& c, std::ostream* stream) {
  *stream << c.name;
}

const BlockCase kCases[] = {
    {"net_first", {3, 28, 28, 1}, {3, 3, 1, 32}, {0, 0}, true},
    {"net_second", {3, 13, 13, 32}, {3, 3, 32, 64}, {0, 0}, true},
    {"net_third", {5, 5, 5, 64}, {3, 3, 64, 64}, {0, 0}, false},
    {"net_first_many_images", {300, 28, 28, 1}, {3, 3, 1, 32}, {0, 0}, true},
    {"net_second_many_images", {64, 13, 13, 32}, {3, 3, 32, 64}, {0, 0}, true},
    {"net_third_many_images", {300, 5, 5, 64}, {3, 3, 64, 64}, {0, 0}, false},
    {"one_by_one", {2, 4, 5, 16}, {1, 1, 16, 16}, {0, 0}, false},
    {"many_channels", {1, 5, 5, 48}, {3, 3, 48, 80}, {0, 0}, false},
    {"padded", {2, 6, 5, 16}, {3, 3, 16, 16}, {1, 1}, true},
    {"padded_unevenly", {70, 6, 7, 16}, {3, 5, 16, 32}, {1, 2}, false},
    {"colors", {2, 9, 8, 3}, {3, 3, 3, 20}, {1, 1}, true},
    {"colors_tall_window", {200, 9, 8, 3}, {5, 3, 3, 36}, {1, 1}, false},
    {"images_in_several_tiles", {3, 56, 56, 64}, {3, 3, 64, 64}, {1, 1}, true},
    {"wide", {2, 30, 30, 128}, {3, 3, 128, 128}, {1, 1}, false},
};

// Error from rounding a product's operands, as a share of it: half a unit of the last place of each. f32
// products drop the 23rd and 24th bit of both; sums of thousands of terms add as much again.
double tolerance_of(Math math) {
  switch (math) {
    case Math::kF32:
      return 2e-6;
    case Math::kTf32:
    case Math::kF16:
      return 0x1p-10;
    case Math::kBf16:
      return 0x1p-7;
  }
  return 0;
}

HostTensor magnitude_of(HostTensor t) {
  for (int64_t i = 0; i < t.elements(); ++i) t.data()[i] = std::abs(t.data()[i]);
  return t;
}

class CudaConvBlock : public testing::TestWithParam<std::tuple<BlockCase, Math>> {
 protected:
  void SetUp() override {
    require_cuda();
    if (IsSkipped() || HasFatalFailure()) return;
    device_ = make_cuda_device({});
    device_->initialize();
  }
  std::vector<HostTensor> on_gpu(const Op& op, const std::vector<HostTensor>& inputs) const {
    KernelSettings settings;
    settings.math = math_;
    return run_on_cuda(*device_, op, inputs, settings);
  }
  // `magnitude`: of the terms of each sum.
  void expect_near(const HostTensor& actual, const HostTensor& expected, const HostTensor& magnitude) const {
    const double tolerance = tolerance_of(math_);
    for (int64_t i = 0; i < expected.elements(); ++i) {
      ASSERT_NEAR(static_cast<double>(actual.data()[i]), static_cast<double>(expected.data()[i]),
                  tolerance * static_cast<double>(magnitude.data()[i]) + 1e-6)
          << "element " << i;
    }
  }

  const BlockCase& c_ = std::get<0>(GetParam());
  const Math math_ = std::get<1>(GetParam());
  const Conv2d conv_{{1, 1}, c_.padding, {1, 1}, 1};
  const ConvBlock op_{conv_, c_.pooled ? std::optional(Pool2d{}) : std::nullopt};
  const std::vector<HostTensor> inputs_ = {random_floats(c_.x, 1), random_floats(c_.filter, 2),
                                           random_floats({c_.filter[3]}, 3)};
  std::unique_ptr<Device> device_;
};

TEST_P(CudaConvBlock, GivesTheCpusResultAndNamesAMaximum) {
  const std::vector<HostTensor> actual = on_gpu(op_, inputs_);
  HostTensor sums =
      run_op(Binary{BinaryKind::kAdd}, {run_op(conv_, {inputs_[0], inputs_[1]})[0], inputs_[2]})[0];
  const HostTensor magnitude = run_op(conv_, {magnitude_of(inputs_[0]), magnitude_of(inputs_[1])})[0];
  if (!c_.pooled) return expect_near(actual[0], run_op(op_, inputs_)[0], magnitude);
  const HostTensor most = run_op(MaxPool{}, {magnitude})[0];
  expect_near(actual[0], run_op(op_, inputs_)[0], most);
  // Checks the position of the maximum: the sum there is the result, and no gradient passes a closed relu.
  const Shape& y = actual[0].spec().shape;
  const Shape& full = sums.spec().shape;
  for (int64_t i = 0; i < actual[0].elements(); ++i) {
    const int64_t k = i % y[3], column = i / y[3] % y[2], row = i / y[3] / y[2] % y[1],
                  image = i / y[3] / y[2] / y[1];
    const uint8_t at = actual[1].data<uint8_t>()[i];
    ASSERT_EQ(at == kNoGradient, actual[0].data()[i] <= 0) << i;
    if (at == kNoGradient) continue;
    ASSERT_LT(at, 4);
    const int64_t from = ((image * full[1] + row * 2 + at / 2) * full[2] + column * 2 + at % 2) * full[3] + k;
    ASSERT_NEAR(static_cast<double>(sums.data()[from]), static_cast<double>(actual[0].data()[i]),
                tolerance_of(math_) * static_cast<double>(most.data()[i]) + 1e-6)
        << i;
  }
}

TEST_P(CudaConvBlock, GivesTheCpusGradientsAndTheSameBitsAgain) {
  const std::vector<HostTensor> block = run_op(op_, inputs_);
  const HostTensor dy = random_floats(block[0].spec().shape, 5);
  const HostTensor& route = c_.pooled ? block[1] : block[0];
  const ConvBlockInputGrad dx{op_, c_.x};
  const ConvBlockFilterGrad dw{op_, c_.filter};
  const std::vector<HostTensor> for_dx = {dy, route, inputs_[1]}, for_dw = {inputs_[0], dy, route};
  const std::vector<HostTensor> actual_dx = on_gpu(dx, for_dx), actual_dw = on_gpu(dw, for_dw);
  expect_near(actual_dx[0], run_op(dx, for_dx)[0],
              run_op(dx, {magnitude_of(dy), route, magnitude_of(inputs_[1])})[0]);
  const std::vector<HostTensor> expected = run_op(dw, for_dw),
                                magnitude = run_op(dw, {magnitude_of(inputs_[0]), magnitude_of(dy), route});
  expect_near(actual_dw[0], expected[0], magnitude[0]);
  expect_near(actual_dw[1], expected[1], magnitude[1]);
  EXPECT_TRUE(on_gpu(dx, for_dx)[0].same_bytes(actual_dx[0]));
  EXPECT_TRUE(on_gpu(dw, for_dw)[0].same_bytes(actual_dw[0]));
}

std::string name_of(const testing::TestParamInfo<std::tuple<BlockCase, Math>>& row) {
  static constexpr const char* kModes[] = {"f32", "tf32", "bf16", "f16"};
  const auto& [shapes, math] = row.param;
  return std::string(shapes.name) + "_" + kModes[static_cast<size_t>(math)];
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaConvBlock,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values(Math::kF32, Math::kTf32, Math::kBf16, Math::kF16)),
                         name_of);

TEST_F(CudaTest, ANanReachesThePooledResult) {
  const std::unique_ptr<Device> device = make_cuda_device({});
  device->initialize();
  for (const Shape& x : {Shape{1, 6, 6, 1}, Shape{1, 6, 6, 16}}) {
    HostTensor pixels = random_floats(x, 1);
    pixels.data()[14 * x[3]] = std::nanf("");
    const std::vector<HostTensor> inputs = {pixels, random_floats({3, 3, x[3], 16}, 2),
                                            random_floats({16}, 3)};
    const HostTensor y = run_on_cuda(*device, ConvBlock{{}, Pool2d{}}, inputs)[0];
    for (int64_t i = 0; i < 16; ++i) EXPECT_TRUE(std::isnan(y.data()[i])) << i;
  }
}

// All layers of a net are made before any of them runs, and share the code of a kernel.
TEST(CudaConvBlocks, ALayerRunsAlsoAfterASmallerOneWasMadeWithTheSameKernel) {
  require_cuda();
  if (testing::Test::IsSkipped() || testing::Test::HasFatalFailure()) return;
  const auto device = make_cuda_device({});
  device->initialize();
  const Conv2d conv{{1, 1}, {1, 1}, {1, 1}, 1};
  const ConvBlock block{conv, std::nullopt};
  struct Layer {
    std::vector<HostTensor> inputs;
    std::unique_ptr<Kernel> kernel;
    std::deque<DeviceTensor> memory;
  };
  std::deque<Layer> layers;
  for (const int64_t channels : {128, 64, 32, 16}) {
    Layer& layer = layers.emplace_back();
    layer.inputs = {random_floats({32, 16, 16, channels}, 1), random_floats({3, 3, channels, 64}, 2),
                    random_floats({64}, 3)};
    const std::vector<TensorSpec> specs = specs_of(layer.inputs), outputs = infer_outputs(block, specs);
    layer.kernel = make_cuda_kernel(block, specs, outputs, *device, {});
    for (const HostTensor& input : layer.inputs) layer.memory.emplace_back(*device, input);
    layer.memory.emplace_back(*device, HostTensor(outputs[0]));
    layer.memory.emplace_back(*device, HostTensor({DType::kU8, {layer.kernel->workspace_bytes()}}));
  }
  for (Layer& layer : layers) {
    const TensorView inputs[] = {layer.memory[0].view(), layer.memory[1].view(), layer.memory[2].view()};
    const TensorView outputs[] = {layer.memory[3].view()};
    ASSERT_NO_THROW(layer.kernel->run(inputs, outputs, layer.memory[4].view().data, {}));
  }
  device->streams().synchronize({});
}

}  // namespace
}  // namespace headroom::test
