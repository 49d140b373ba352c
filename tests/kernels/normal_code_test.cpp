// Normalized values in 8 bits.

#include "kernels/normal_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace headroom {
namespace {

TEST(NormalCode, EveryCodeComesBack) {
  for (int code = 0; code < 256; ++code) {
    const float normal = normal_of_code(static_cast<uint8_t>(code));
    EXPECT_EQ(code_of_normal(normal), code) << normal;
  }
}

TEST(NormalCode, WhatComesBackIsCloseAndKeepsItsSign) {
  std::mt19937 engine(1);
  std::normal_distribution<float> standard;
  double squares = 0;
  constexpr int kCount = 100'000;
  for (int i = 0; i < kCount; ++i) {
    const float normal = standard(engine), back = normal_of_code(code_of_normal(normal));
    EXPECT_LE(std::abs(back - normal), std::max(1.0f / 250, std::abs(normal) / 31)) << normal;
    EXPECT_GE(back * normal, 0) << normal;
    squares += std::pow(back - normal, 2);
  }
  EXPECT_LT(std::sqrt(squares / kCount), 0.0135);
}

TEST(NormalCode, OutliersBecomeTheMost) {
  EXPECT_EQ(normal_of_code(code_of_normal(100)), kMostNormal);
  EXPECT_EQ(normal_of_code(code_of_normal(-std::numeric_limits<float>::infinity())), -kMostNormal);
  EXPECT_EQ(normal_of_code(code_of_normal(0)), 0);
}

}  // namespace
}  // namespace headroom
