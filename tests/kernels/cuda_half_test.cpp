// The kernels for an NVIDIA GPU on floats stored in 16 bits: they compute in f32 and round once, as the
// CPU's.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/cuda/cuda_kernels.h"
#include "tests/kernels/cuda_run.h"
#include "tests/kernels/half_tensors.h"
#include "tests/kernels/kernel_cases.h"
#include "tests/require_cuda.h"

namespace headroom::test {
namespace {

constexpr DType kHalves[] = {DType::kBf16, DType::kF16};

// Half a step of a number stored in 16 bits, as a share of it.
double rounding(DType half) {
  return half == DType::kBf16 ? 0x1p-8 : 0x1p-11;
}

double root_mean_square(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

class CudaHalfTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    device_ = make_cuda_device({});
    device_->initialize();
  }

  // `tolerance` is a share of `scale`, or of a value that is larger.
  void expect_close(const HostTensor& got, const HostTensor& want, DType half, double tolerance,
                    double scale = 1) {
    ASSERT_EQ(got.spec(), want.spec());
    if (got.same_bytes(want)) return;
    const std::vector<double> g = got.values(), w = want.values();
    const bool is_real = got.spec().dtype != DType::kI32 && got.spec().dtype != DType::kU8;
    for (size_t i = 0; i < g.size(); ++i) {
      if (g[i] == w[i] || (std::isnan(g[i]) && std::isnan(w[i]))) continue;
      // Two sums that differ in their last bits may be rounded to neighbors.
      const double allowed =
          tolerance * std::max(scale, std::abs(w[i])) + 2 * rounding(half) * std::abs(w[i]);
      ASSERT_TRUE(is_real && std::abs(g[i] - w[i]) <= allowed)
          << "element " << i << ": " << g[i] << ", on the CPU " << w[i];
    }
  }

  void expect_as_on_the_cpu(const KernelCase& row, DType half, int64_t shift) {
    std::vector<HostTensor> inputs = stored_in(half, row.inputs);
    std::vector<TensorSpec> outputs = stored_in(half, infer_outputs(row.op, specs_of(row.inputs)));
    // Sums over rows stay f32: the kernel reads them again.
    if (std::holds_alternative<BatchNorm>(row.op) || std::holds_alternative<BatchNormGrad>(row.op))
      outputs[1].dtype = outputs[2].dtype = DType::kF32;
    // So do the statistics of a softmax.
    if (std::holds_alternative<Attention>(row.op)) outputs[1].dtype = DType::kF32;
    if (const auto* gradient = std::get_if<AttentionGrad>(&row.op)) {
      const size_t statistics = gradient->packed ? 3 : 5;
      inputs[statistics] = row.inputs[statistics];
    }
    const std::vector<HostTensor> expected = run_as(row.op, inputs, outputs);
    CudaRun way{.shift = shift};
    way.outputs = outputs;
    const std::vector<HostTensor> got = run_on_cuda(*device_, row.op, inputs, {.math = Math::kF32}, way);
    // Kernels of attention and of conv_norm_grad also round the factors of their second products, that of
    // conv_norm_apply its filter's, that of a batch norm the sum of its branches' gradients, and libraries a
    // product before they add to it.
    const bool rounds_twice =
        std::holds_alternative<Attention>(row.op) || std::holds_alternative<AttentionGrad>(row.op) ||
        std::holds_alternative<ConvNormGrad>(row.op) || std::holds_alternative<ConvNormApply>(row.op) ||
        (std::holds_alternative<BatchNormGrad>(row.op) && row.inputs.size() == 7) ||
        (std::holds_alternative<Dense>(row.op) && row.inputs.size() == 4);
    // Two terms of a conv_norm_grad are each up to seven times their sum.
    const double roundings = std::holds_alternative<ConvNormGrad>(row.op) ? 16 : 8;
    const double tolerance = rounds_twice ? roundings * rounding(half) : row.tolerance;
    for (size_t r = 0; r < got.size(); ++r) {
      // The rounding of a term stays when the term is canceled by another.
      const double scale = rounds_twice ? std::max(1.0, root_mean_square(expected[r].values())) : 1;
      expect_close(got[r], expected[r], half, tolerance, scale);
    }
  }

  std::unique_ptr<Device> device_;
};

bool takes_half(const Op& op) {
  return traits_of(op).takes_half && !is_update(op) && !std::holds_alternative<TakeBatch>(op);
}

TEST_F(CudaHalfTest, EveryKernelGivesTheCpusNumbers) {
  for (const auto& cases : {kernel_cases(), large_kernel_cases()}) {
    for (const KernelCase& row : cases) {
      if (!takes_half(row.op)) continue;
      for (const DType half : kHalves) {
        for (const int64_t shift : {0, 1}) {
          // Libraries support only aligned operands, and the runtime aligns every tensor to 256 bytes.
          if (shift > 0 && library_of(row.op) != Library::kNone) continue;
          SCOPED_TRACE(row.name + " " + std::string(to_string(half)) + (shift > 0 ? " unaligned" : ""));
          expect_as_on_the_cpu(row, half, shift);
        }
      }
    }
  }
}

TEST_F(CudaHalfTest, CastsRoundAndComeBack) {
  const HostTensor x = random_floats({1031}, 5);
  for (const DType half : kHalves) {
    const CudaRun narrow{.outputs = {{half, {1031}}}}, widen{.outputs = {{DType::kF32, {1031}}}};
    const std::vector<HostTensor> stored = run_on_cuda(*device_, Cast{half}, {x}, {}, narrow);
    EXPECT_TRUE(stored[0].same_bytes(stored_in(half, x)));
    EXPECT_TRUE(
        run_on_cuda(*device_, Cast{DType::kF32}, stored, {}, widen)[0].same_bytes(widened(stored[0])));
  }
}

TEST_F(CudaHalfTest, RowsOfATableOfWeightsAreRounded) {
  const HostTensor table = random_floats({17, 24}, 1), indices = tensor<int32_t>({5}, {3, 0, 16, 3, 9});
  for (const DType half : kHalves) {
    const std::vector<TensorSpec> outputs = {{half, {5, 24}}};
    const std::vector<HostTensor> got =
        run_on_cuda(*device_, Gather{}, {table, indices}, {}, {.outputs = outputs});
    EXPECT_TRUE(got[0].same_bytes(run_as(Gather{}, {table, indices}, outputs)[0]));
  }
}

TEST_F(CudaHalfTest, ABiasOfF32IsAddedToRowsOfSixteenBits) {
  const HostTensor x = stored_in(DType::kBf16, random_floats({33, 40}, 1)), bias = random_floats({40}, 2);
  const std::vector<TensorSpec> outputs = {{DType::kBf16, {33, 40}}};
  for (const std::vector<HostTensor>& inputs : {std::vector{x, bias}, std::vector{bias, x}}) {
    const std::vector<HostTensor> got =
        run_on_cuda(*device_, Binary{BinaryKind::kAdd}, inputs, {}, {.outputs = outputs});
    EXPECT_TRUE(got[0].same_bytes(run_as(Binary{BinaryKind::kAdd}, inputs, outputs)[0]));
  }
}

TEST_F(CudaHalfTest, ProductsAndConvolutionsMultiplyWhatIsStored) {
  const Conv2d by_result{{1, 1}, {1, 1}, {1, 1}, 1, true};
  const std::vector<std::pair<Op, std::vector<HostTensor>>> rows = {
      {MatMul{}, {random_floats({48, 64}, 1), random_floats({64, 40}, 2)}},
      {MatMul{false, true}, {random_floats({3, 16, 24}, 1), random_floats({3, 8, 24}, 2)}},
      {MatMul{true, false}, {random_floats({33, 17}, 1), random_floats({33, 9}, 2)}},
      {Dense{}, {random_floats({16, 32}, 1), random_floats({32, 24}, 2), random_floats({24}, 3)}},
      {DenseFilterGrad{}, {random_floats({64, 32}, 1), random_floats({64, 24}, 2)}},
      {Conv2d{{1, 1}, {1, 1}}, {random_floats({2, 9, 9, 16}, 1), random_floats({3, 3, 16, 32}, 2)}},
      {Conv2d{{2, 2}, {1, 1}}, {random_floats({2, 9, 9, 3}, 1), random_floats({3, 3, 3, 8}, 2)}},
      {ConvBias{by_result, true},
       {random_floats({2, 9, 9, 16}, 1), random_floats({32, 3, 3, 16}, 2), random_floats({32}, 3),
        random_floats({2, 9, 9, 32}, 4)}},
      {by_result, {random_floats({2, 9, 9, 16}, 1), random_floats({32, 3, 3, 16}, 2)}},
      {Conv2dInputGrad{by_result, {2, 9, 9, 16}},
       {random_floats({2, 9, 9, 32}, 1), random_floats({32, 3, 3, 16}, 2)}},
      {Conv2dFilterGrad{by_result, {32, 3, 3, 16}},
       {random_floats({2, 9, 9, 16}, 1), random_floats({2, 9, 9, 32}, 2)}},
      {Conv2dInputGrad{{{1, 1}, {1, 1}}, {2, 9, 9, 16}},
       {random_floats({2, 9, 9, 32}, 1), random_floats({3, 3, 16, 32}, 2)}},
      {Conv2dFilterGrad{{{1, 1}, {1, 1}}, {3, 3, 16, 32}},
       {random_floats({2, 9, 9, 16}, 1), random_floats({2, 9, 9, 32}, 2)}}};
  for (const auto& [op, operands] : rows) {
    for (const DType half : kHalves) {
      SCOPED_TRACE(std::string(op_name(op)) + " " + std::string(to_string(half)));
      const std::vector<HostTensor> inputs = stored_in(half, operands);
      const std::vector<TensorSpec> f32 = infer_outputs(op, specs_of(operands));
      for (const std::vector<TensorSpec>& outputs : {stored_in(half, f32), f32}) {
        // A bias has its result's type.
        if (outputs == f32 && std::holds_alternative<Dense>(op)) continue;
        const std::vector<HostTensor> expected = run_as(op, inputs, outputs);
        const std::vector<HostTensor> got = run_on_cuda(*device_, op, inputs, {}, {.outputs = outputs});
        // The residual of a convolution is added to its rounded result.
        const double tolerance =
            std::holds_alternative<ConvBias>(op) && outputs != f32 ? 4 * rounding(half) : 2e-4;
        for (size_t r = 0; r < got.size(); ++r) expect_close(got[r], expected[r], half, tolerance);
      }
    }
  }
}

TEST_F(CudaHalfTest, DepthwiseConvolutionsAndTheirGradientsGiveTheCpusNumbers) {
  struct Row {
    Shape image;
    int size, stride;
  };
  for (const Row& row : {Row{{2, 15, 18, 40}, 3, 1}, Row{{2, 15, 18, 40}, 3, 2}, Row{{1, 9, 7, 264}, 5, 1},
                         Row{{2, 16, 15, 24}, 5, 2}, Row{{2, 14, 21, 8}, 7, 1}, Row{{1, 17, 30, 136}, 7, 2},
                         Row{{3, 2, 1, 16}, 7, 1}}) {
    const auto channels = static_cast<int>(row.image[3]);
    const int padding = row.size / 2;
    for (const bool by_result : {false, true}) {
      const Conv2d conv{{row.stride, row.stride}, {padding, padding}, {1, 1}, channels, by_result};
      const Shape filter =
          by_result ? Shape{channels, row.size, row.size, 1} : Shape{row.size, row.size, 1, channels};
      const HostTensor x = random_floats(row.image, 1), w = random_floats(filter, 2);
      const HostTensor dy = random_floats(infer_outputs(conv, specs_of({x, w}))[0].shape, 3);
      const std::pair<Op, std::vector<HostTensor>> parts[] = {{conv, {x, w}},
                                                              {Conv2dInputGrad{conv, row.image}, {dy, w}},
                                                              {Conv2dFilterGrad{conv, filter}, {x, dy}}};
      for (const auto& [op, operands] : parts) {
        for (const DType half : kHalves) {
          SCOPED_TRACE(fmt::format("{} {} by {} {} {}", op_name(op), to_string(row.image), row.size,
                                   row.stride, to_string(half)));
          const std::vector<HostTensor> inputs = stored_in(half, operands);
          const std::vector<TensorSpec> f32 = infer_outputs(op, specs_of(operands));
          for (const std::vector<TensorSpec>& outputs : {stored_in(half, f32), f32}) {
            if (outputs == f32 && !std::holds_alternative<Conv2dFilterGrad>(op)) continue;
            const std::vector<HostTensor> got = run_on_cuda(*device_, op, inputs, {}, {.outputs = outputs});
            expect_close(got[0], run_as(op, inputs, outputs)[0], half, 2e-4);
          }
        }
      }
    }
  }
}

TEST_F(CudaHalfTest, OptimizersReadGradientsOfSixteenBitsAndAScaleThatAdapts) {
  const HostTensor w = random_floats({5000}, 1), m = random_floats({5000}, 3),
                   v = random_floats({5000}, 4, 0, 2);
  const HostTensor g = stored_in(DType::kF16, random_floats({5000}, 2)), rate = tensor<float>({}, {0.1f});
  const HostTensor step = tensor<int32_t>({}, {3});
  for (const float inverse : {0.0f, 0.25f}) {
    const HostTensor scale = tensor<float>({}, {inverse});
    SgdUpdate plain, sgd{0.9f};
    RmspropUpdate rmsprop;
    AdamUpdate adam;
    plain.scaled = sgd.scaled = rmsprop.scaled = adam.scaled = true;
    const std::vector<std::pair<Op, std::vector<HostTensor>>> rows = {
        {plain, {rate, scale, w, g}},
        {sgd, {rate, scale, w, g, m}},
        {rmsprop, {rate, scale, w, g, v}},
        {adam, {rate, step, scale, w, g, m, v}}};
    for (const auto& [op, operands] : rows) {
      SCOPED_TRACE(op_name(op));
      const std::vector<HostTensor> expected = operands, got = operands;
      run_as(op, expected, {});
      run_on_cuda(*device_, op, got);
      for (size_t i = 0; i < got.size(); ++i) {
        if (inverse == 0) {
          EXPECT_TRUE(got[i].same_bytes(operands[i])) << i;
        }
        expect_close(got[i], expected[i], DType::kF16, 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace headroom::test
