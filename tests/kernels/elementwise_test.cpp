#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/host_tensor.h"

namespace headroom::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kMax = std::numeric_limits<int32_t>::max(), kMin = std::numeric_limits<int32_t>::min();

template <typename From, typename To>
std::vector<To> cast(const std::vector<From>& values) {
  const HostTensor y =
      run_op(Cast{dtype_of<To>}, {tensor<From>({static_cast<int64_t>(values.size())}, values)})[0];
  return std::vector<To>(y.data<To>(), y.data<To>() + values.size());
}

TEST(Cast, GoesTowardsZero) {
  EXPECT_EQ((cast<float, int32_t>({1.9f, -1.9f, 0.5f, -0.5f})), (std::vector<int32_t>{1, -1, 0, 0}));
  EXPECT_EQ((cast<float, uint8_t>({1.9f, 254.9f, 255.9f, -0.5f})), (std::vector<uint8_t>{1, 254, 255, 0}));
}

TEST(Cast, SaturatesInEveryLane) {
  // More than a vector of each, so that the vectorized loop and the tail both meet them.
  for (int copies : {1, 40}) {
    std::vector<float> wide;
    std::vector<int32_t> whole, expected;
    std::vector<uint8_t> small, small_of_whole;
    for (int i = 0; i < copies; ++i) {
      for (float x : {3e9f, -3e9f, 2147483648.0f, -2147483648.0f, 2147483520.0f, kInfinity, -kInfinity, kNan})
        wide.push_back(x);
      for (int32_t y : {kMax, kMin, kMax, kMin, 2147483520, kMax, kMin, 0}) expected.push_back(y);
      for (int y : {255, 0, 255, 0, 255, 255, 0, 0}) small.push_back(static_cast<uint8_t>(y));
      for (int32_t x : {kMax, kMin, 256, -1, 255}) whole.push_back(x);
      for (int y : {255, 0, 255, 0, 255}) small_of_whole.push_back(static_cast<uint8_t>(y));
    }
    EXPECT_EQ((cast<float, int32_t>(wide)), expected);
    EXPECT_EQ((cast<float, uint8_t>(wide)), small);
    EXPECT_EQ((cast<int32_t, uint8_t>(whole)), small_of_whole);
  }
}

TEST(Activations, ReachTheirLimitsWithoutNan) {
  for (int64_t n : {1, 16}) {
    const auto at = [&](UnaryKind kind, float x) {
      return run_op(Unary{kind}, {tensor<float>({n}, std::vector<float>(static_cast<size_t>(n), x))})[0]
          .data()[0];
    };
    EXPECT_EQ(at(UnaryKind::kSigmoid, 200), 1);
    EXPECT_NEAR(at(UnaryKind::kSigmoid, -200), 0, 1e-30);
    EXPECT_EQ(at(UnaryKind::kExp, kInfinity), kInfinity);
    EXPECT_EQ(at(UnaryKind::kExp, 89), kInfinity);
    EXPECT_EQ(at(UnaryKind::kExp, -kInfinity), 0);
    EXPECT_FLOAT_EQ(at(UnaryKind::kExp, -87), std::exp(-87.0f));
    EXPECT_TRUE(std::isnan(at(UnaryKind::kExp, kNan)));
    EXPECT_TRUE(std::isnan(at(UnaryKind::kTanh, kNan)));
    EXPECT_EQ(at(UnaryKind::kTanh, 1e-30f), 1e-30f);
    EXPECT_NEAR(at(UnaryKind::kTanh, kInfinity), 1, 1e-6);
    EXPECT_NEAR(at(UnaryKind::kTanh, -kInfinity), -1, 1e-6);
    EXPECT_EQ(at(UnaryKind::kGelu, 100), 100);
    EXPECT_EQ(at(UnaryKind::kGelu, -100), 0);
    EXPECT_TRUE(std::isnan(at(UnaryKind::kRelu, kNan)));
    EXPECT_EQ(at(UnaryKind::kRelu, -kInfinity), 0);
  }
}

TEST(Dropout, KeepsTheStatedShareAndScalesIt) {
  constexpr int64_t kCount = 100003;
  const HostTensor x = tensor<float>({kCount}, std::vector<float>(kCount, 2.0f));
  for (float rate : {0.0f, 0.1f, 0.5f, 0.9f}) {
    const HostTensor y = run_op(Dropout{rate, 5}, {x, tensor<int32_t>({}, {1})})[0];
    int64_t kept = 0;
    for (double value : y.values()) {
      if (value == 0) continue;
      ++kept;
      ASSERT_FLOAT_EQ(static_cast<float>(value), 2 / (1 - rate));
    }
    const double share = 1 - static_cast<double>(rate);
    // Five standard deviations of a binomial count.
    const double allowed = 5 * std::sqrt(kCount * share * (1 - share)) + 1e-9;
    EXPECT_NEAR(static_cast<double>(kept), share * kCount, allowed) << "rate " << rate;
  }
}

TEST(Dropout, DrawsTheSameMaskForTheGradientAndAnotherForTheNextStep) {
  const HostTensor x = random_floats({50, 41}, 1, 1, 2), dy = random_floats({50, 41}, 2, 1, 2);
  const auto mask = [](const HostTensor& of, uint64_t seed, int32_t step) {
    std::vector<bool> kept;
    for (double value : run_op(Dropout{0.5f, seed}, {of, tensor<int32_t>({}, {step})})[0].values())
      kept.push_back(value != 0);
    return kept;
  };
  EXPECT_EQ(mask(x, 9, 4), mask(dy, 9, 4));
  EXPECT_NE(mask(x, 9, 4), mask(x, 9, 5));
  EXPECT_NE(mask(x, 9, 4), mask(x, 10, 4));
}

}  // namespace
}  // namespace headroom::test
