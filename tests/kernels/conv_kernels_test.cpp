// Convolutions and their gradients against plain loops in double, over a table of shapes.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tests/kernels/conv_cases.h"
#include "tests/kernels/heap_counter.h"
#include "tests/kernels/host_tensor.h"

namespace headroom::test {
namespace {

// Calls f(x position, filter position, y position) for every multiply-add of the convolution.
template <typename F>
void for_each_term(const ConvCase& c, const Shape& y, F f) {
  const int64_t cg = c.filter[2], kg = c.filter[3] / c.conv.groups;
  for (int64_t n = 0; n < y[0]; ++n)
    for (int64_t oy = 0; oy < y[1]; ++oy)
      for (int64_t ox = 0; ox < y[2]; ++ox)
        for (int64_t k = 0; k < y[3]; ++k)
          for (int64_t i = 0; i < c.filter[0]; ++i)
            for (int64_t j = 0; j < c.filter[1]; ++j) {
              const int64_t iy = oy * c.conv.stride[0] + i * c.conv.dilation[0] - c.conv.padding[0];
              const int64_t ix = ox * c.conv.stride[1] + j * c.conv.dilation[1] - c.conv.padding[1];
              if (iy < 0 || ix < 0 || iy >= c.x[1] || ix >= c.x[2]) continue;
              for (int64_t channel = 0; channel < cg; ++channel) {
                f(((n * c.x[1] + iy) * c.x[2] + ix) * c.x[3] + k / kg * cg + channel,
                  ((i * c.filter[1] + j) * cg + channel) * y[3] + k,
                  ((n * y[1] + oy) * y[2] + ox) * y[3] + k);
              }
            }
}

// The expected result, and the sum of the magnitudes of its terms: float32 may err by a share of that.
struct Expected {
  explicit Expected(const Shape& shape)
      : value(static_cast<size_t>(shape.elements())), magnitude(value.size()) {}
  void add(int64_t at, double term) {
    value[static_cast<size_t>(at)] += term;
    magnitude[static_cast<size_t>(at)] += std::abs(term);
  }
  std::vector<double> value, magnitude;
};

void expect_near(const HostTensor& actual, const Expected& expected) {
  ASSERT_TRUE(actual.guard_intact());
  for (size_t i = 0; i < expected.value.size(); ++i) {
    // 2^-24 is float32's rounding; blocked sums of some hundred terms stay below 16 of them.
    ASSERT_NEAR(static_cast<double>(actual.data()[i]), expected.value[i], 1e-6 * expected.magnitude[i] + 1e-7)
        << "element " << i;
  }
}

class ConvKernelTest : public testing::TestWithParam<ConvCase> {
 protected:
  const ConvCase& c = GetParam();
  HostTensor x = random_floats(c.x, 1), filter = random_floats(c.filter, 2);
  HostTensor bias = random_floats({c.filter[3]}, 3);
  Shape y = infer_outputs(c.conv, specs_of({x, filter}))[0].shape;

  // relu(conv + bias), then the pool, from unfused kernels; with the index as a block gives it.
  std::vector<HostTensor> unfused() {
    HostTensor between = run_op(c.conv, {x, filter})[0];
    between = run_op(Unary{UnaryKind::kRelu}, {run_op(Binary{BinaryKind::kAdd}, {between, bias})[0]})[0];
    if (!c.pool) return {between};
    std::vector<HostTensor> pooled = run_op(MaxPool{*c.pool}, {between});
    for (int64_t i = 0; i < pooled[0].elements(); ++i) {
      if (pooled[0].data()[i] <= 0) pooled[1].data<uint8_t>()[i] = kNoGradient;
    }
    return pooled;
  }
  // The gradient that reaches the convolution, from unfused kernels.
  HostTensor gradient_of_conv(const HostTensor& dy, const std::vector<HostTensor>& block) {
    if (!c.pool) return run_op(UnaryGrad{UnaryKind::kRelu}, {dy, block[0]})[0];
    // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): changed below, through data()
    HostTensor live = dy, index = block[1];
    for (int64_t i = 0; i < dy.elements(); ++i) {
      if (index.data<uint8_t>()[i] != kNoGradient) continue;
      index.data<uint8_t>()[i] = 0;
      live.data()[i] = 0;
    }
    // The first position of a padded window can lie outside, where MaxPoolGrad must not read.
    if (c.pool->padding != Pair{0, 0}) {
      HostTensor between = run_op(c.conv, {x, filter})[0];
      between = run_op(Unary{UnaryKind::kRelu}, {run_op(Binary{BinaryKind::kAdd}, {between, bias})[0]})[0];
      index = run_op(MaxPool{*c.pool}, {between})[1];
    }
    return run_op(MaxPoolGrad{*c.pool, y}, {live, index})[0];
  }
};

TEST_P(ConvKernelTest, ForwardAndBothGradientsAgreeWithPlainLoops) {
  const HostTensor dy = random_floats(y, 4);
  Expected forward(y), dx(c.x), dfilter(c.filter);
  for_each_term(c, y, [&](int64_t ix, int64_t iw, int64_t iy) {
    const double vx = static_cast<double>(x.data()[ix]), vw = static_cast<double>(filter.data()[iw]);
    const double vy = static_cast<double>(dy.data()[iy]);
    forward.add(iy, vx * vw);
    dx.add(ix, vy * vw);
    dfilter.add(iw, vy * vx);
  });
  expect_near(run_op(c.conv, {x, filter})[0], forward);
  expect_near(run_op(Conv2dInputGrad{c.conv, c.x}, {dy, filter})[0], dx);
  expect_near(run_op(Conv2dFilterGrad{c.conv, c.filter}, {x, dy})[0], dfilter);
}

TEST_P(ConvKernelTest, AFilterByResultGivesTheSameBits) {
  const HostTensor dy = random_floats(y, 4), turned = filter_by_result(filter);
  const Conv2d by_result = with_filter_by_result(c.conv);
  EXPECT_TRUE(run_op(by_result, {x, turned})[0].same_bytes(run_op(c.conv, {x, filter})[0]));
  EXPECT_TRUE(run_op(Conv2dInputGrad{by_result, c.x}, {dy, turned})[0].same_bytes(
      run_op(Conv2dInputGrad{c.conv, c.x}, {dy, filter})[0]));
  EXPECT_TRUE(run_op(Conv2dFilterGrad{by_result, turned.spec().shape}, {x, dy})[0].same_bytes(
      filter_by_result(run_op(Conv2dFilterGrad{c.conv, c.filter}, {x, dy})[0])));
}

TEST_P(ConvKernelTest, AConvolutionOfAForwardPassEqualsItsParts) {
  const HostTensor residual = random_floats(y, 5);
  const HostTensor biased = run_op(Binary{BinaryKind::kAdd}, {run_op(c.conv, {x, filter})[0], bias})[0];
  const HostTensor both = run_op(Binary{BinaryKind::kAdd}, {biased, residual})[0];
  const Op relu = Unary{UnaryKind::kRelu};
  const Conv2d by_result = with_filter_by_result(c.conv);
  for (const auto& [conv, w] : {std::pair{c.conv, filter}, std::pair{by_result, filter_by_result(filter)}}) {
    EXPECT_TRUE(run_op(ConvBias{conv}, {x, w, bias})[0].same_bytes(biased));
    EXPECT_TRUE(run_op(ConvBias{conv, true}, {x, w, bias})[0].same_bytes(run_op(relu, {biased})[0]));
    EXPECT_TRUE(run_op(ConvBias{conv}, {x, w, bias, residual})[0].same_bytes(both));
    EXPECT_TRUE(run_op(ConvBias{conv, true}, {x, w, bias, residual})[0].same_bytes(run_op(relu, {both})[0]));
  }
}

TEST_P(ConvKernelTest, ABlockEqualsItsPartsAndItsIndexNamesTheMaximum) {
  const ConvBlock op{c.conv, c.pool};
  const std::vector<HostTensor> block = run_op(op, {x, filter, bias}), parts = unfused();
  ASSERT_EQ(block.size(), parts.size());
  ASSERT_EQ(block[0].spec(), parts[0].spec());
  for (int64_t i = 0; i < parts[0].elements(); ++i) {
    const float expected = parts[0].data()[i];
    ASSERT_NEAR(block[0].data()[i], expected, 1e-4f * std::max(1.0f, std::abs(expected))) << "element " << i;
    // Two positions within rounding of each other may change places; random numbers have none here.
    if (c.pool) {
      ASSERT_EQ(block[1].data<uint8_t>()[i], parts[1].data<uint8_t>()[i]) << "element " << i;
    }
  }
}

TEST_P(ConvKernelTest, ABlocksGradientsEqualThoseOfItsParts) {
  const ConvBlock op{c.conv, c.pool};
  const std::vector<HostTensor> block = run_op(op, {x, filter, bias});
  const HostTensor dy = random_floats(block[0].spec().shape, 5);
  const HostTensor& route = c.pool ? block[1] : block[0];
  const HostTensor g = gradient_of_conv(dy, block);
  const HostTensor dx = run_op(Conv2dInputGrad{c.conv, c.x}, {g, filter})[0];
  const HostTensor dfilter = run_op(Conv2dFilterGrad{c.conv, c.filter}, {x, g})[0];
  const HostTensor dbias = run_op(Reduce{ReduceKind::kSum, {0, 1, 2}}, {g})[0];
  const HostTensor block_dx = run_op(ConvBlockInputGrad{op, c.x}, {dy, route, filter})[0];
  const std::vector<HostTensor> grads = run_op(ConvBlockFilterGrad{op, c.filter}, {x, dy, route});
  const auto expect_close = [](const HostTensor& actual, const HostTensor& expected) {
    ASSERT_TRUE(actual.guard_intact());
    for (int64_t i = 0; i < expected.elements(); ++i) {
      const float value = expected.data()[i];
      ASSERT_NEAR(actual.data()[i], value, 2e-4f * std::max(1.0f, std::abs(value))) << "element " << i;
    }
  };
  expect_close(block_dx, dx);
  expect_close(grads[0], dfilter);
  expect_close(grads[1], dbias);
}

TEST_P(ConvKernelTest, TheSameInputGivesTheSameBits) {
  const ConvBlock op{c.conv, c.pool};
  const std::vector<HostTensor> one = run_op(op, {x, filter, bias}), two = run_op(op, {x, filter, bias});
  EXPECT_TRUE(one[0].same_bytes(two[0]));
  const HostTensor dy = random_floats(one[0].spec().shape, 5);
  const HostTensor& route = c.pool ? one[1] : one[0];
  const auto grads = [&] { return run_op(ConvBlockFilterGrad{op, c.filter}, {x, dy, route}); };
  EXPECT_TRUE(grads()[0].same_bytes(grads()[0]));
}

struct Prepared {
  Op op;
  std::vector<TensorSpec> inputs;
};

// A convolution of so many times the rows and columns, and its gradients, with and without relu and pooling.
std::vector<Prepared> ops_of(const ConvCase& row, int64_t times) {
  const TensorSpec image{DType::kF32, {row.x[0], times * row.x[1], times * row.x[2], row.x[3]}};
  const TensorSpec taps{DType::kF32, row.filter}, sums{DType::kF32, {row.filter[3]}};
  const TensorSpec result = infer_outputs(row.conv, std::array{image, taps})[0];
  const ConvBlock block{row.conv, row.pool};
  const auto of_block = infer_outputs(block, std::array{image, taps, sums});
  const TensorSpec route = row.pool ? of_block[1] : of_block[0];
  return {{row.conv, {image, taps}},
          {block, {image, taps, sums}},
          {Conv2dInputGrad{row.conv, image.shape}, {result, taps}},
          {Conv2dFilterGrad{row.conv, taps.shape}, {image, result}},
          {ConvBlockInputGrad{block, image.shape}, {of_block[0], route, taps}},
          {ConvBlockFilterGrad{block, taps.shape}, {image, of_block[0], route}}};
}

// Plans ask for the workspace alone, also of images that have no room anywhere.
TEST_P(ConvKernelTest, PreparingTakesAsManyAllocationsForAnyImage) {
  if (!HeapCounter::works()) GTEST_SKIP() << "a sanitizer owns the heap, or the C library is not glibc";
  const auto allocations = [&](int64_t times) {
    int64_t count = 0;
    for (const auto& [op, inputs] : ops_of(GetParam(), times)) {
      const auto outputs = infer_outputs(op, inputs);
      const HeapCounter counter;
      EXPECT_GE(make_cpu_kernel(op, inputs, outputs)->workspace_bytes(), 0);
      count += counter.allocations();
    }
    return count;
  };
  EXPECT_EQ(allocations(1), allocations(500));
}

// Plans and predictions for simulated GPUs depend on them.
TEST(Workspaces, AreTheSameOnEveryHost) {
  const auto bytes_of = [](const Op& op, const std::vector<TensorSpec>& inputs) {
    return make_cpu_kernel(op, inputs, infer_outputs(op, inputs))->workspace_bytes();
  };
  int64_t convolutions = 0;
  for (const ConvCase& row : kConvCases) {
    for (const auto& [op, inputs] : ops_of(row, 3)) convolutions += bytes_of(op, inputs);
  }
  EXPECT_EQ(convolutions, 12234032);
  const auto product = [&](int64_t m, int64_t n, int64_t k) {
    return bytes_of(MatMul{}, {{DType::kF32, {m, k}}, {DType::kF32, {k, n}}});
  };
  EXPECT_EQ(product(16, 16, 16), 1024);       // all of b
  EXPECT_EQ(product(64, 10000, 64), 16384);   // a panel of 64 columns
  EXPECT_EQ(product(10000, 64, 512), 65536);  // of 256 rows
  EXPECT_EQ(product(1024, 1024, 4096), 65536);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ConvKernelTest, testing::ValuesIn(kConvCases),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(ConvBlock, ANanReachesThePooledResult) {
  HostTensor x = random_floats({1, 6, 6, 1}, 1), filter = random_floats({3, 3, 1, 16}, 2),
             bias = random_floats({16}, 3);
  x.data()[14] = std::nanf("");
  const HostTensor y = run_op(ConvBlock{{}, Pool2d{}}, {x, filter, bias})[0];
  for (int64_t i = 0; i < 16; ++i) EXPECT_TRUE(std::isnan(y.data()[i])) << i;
}

}  // namespace
}  // namespace headroom::test
