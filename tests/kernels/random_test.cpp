#include "base/random.h"

#include <gtest/gtest.h>

#include <set>

namespace headroom {
namespace {

// From kat_vectors of Random123, the code published with the paper.
TEST(Philox, GivesThePublishedWords) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomFloats, AreInTheHalfOpenUnitInterval) {
  EXPECT_EQ(unit_float(0), 0.0f);
  EXPECT_LT(unit_float(0xffffffff), 1.0f);
}

TEST(RandomFloats, AreUniform) {
  constexpr int kCount = 100000;
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double value = static_cast<double>(random_unit_float(7, 0, i));
    sum += value;
    squares += value * value;
  }
  // Mean 1/2 and second moment 1/3, within five standard deviations of their estimates.
  EXPECT_NEAR(sum / kCount, 0.5, 5 * 0.289 / 316);
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 5 * 0.298 / 316);
}

TEST(RandomFloats, DifferBySeedByStreamAndByElement) {
  std::set<float> seen;
  for (uint64_t seed : {uint64_t{1}, uint64_t{1} << 32}) {
    for (uint64_t stream : {uint64_t{0}, uint64_t{1} << 32}) {
      for (uint64_t element : {uint64_t{0}, uint64_t{1}, uint64_t{4}, uint64_t{1} << 34}) {
        EXPECT_TRUE(seen.insert(random_unit_float(seed, stream, element)).second);
      }
    }
  }
}

}  // namespace
}  // namespace headroom
