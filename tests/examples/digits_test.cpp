#include "examples/models/mnist/digits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>

#include "base/errors.h"

namespace headroom {
namespace {

// FNV-1a, for comparing bytes across machines.
uint64_t checksum(const std::vector<uint8_t>& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

TEST(DrawDigits, DrawsTheSameBytesOnEveryMachine) {
  const Dataset digits = draw_digits(200, 1);
  EXPECT_EQ(checksum(digits.images), 5742061709063920711u);
  EXPECT_EQ(checksum(digits.labels), 10327045323503803422u);
}

TEST(DrawDigits, ImageDependsOnSeedAndIndexAlone) {
  const Dataset whole = draw_digits(30, 7);
  const Dataset tail = draw_digits(10, 7, 20);
  EXPECT_TRUE(
      std::equal(tail.images.begin(), tail.images.end(), whole.images.begin() + 20 * Dataset::kImageBytes));
  EXPECT_TRUE(std::equal(tail.labels.begin(), tail.labels.end(), whole.labels.begin() + 20));
  EXPECT_NE(draw_digits(30, 8).images, whole.images);
}

TEST(DrawDigits, EveryDigitIsEquallyFrequent) {
  const Dataset digits = draw_digits(5000, 3);
  std::array<int, Dataset::kClasses> counts{};
  for (const uint8_t label : digits.labels) ++counts.at(label);
  for (const int count : counts) {
    EXPECT_GT(count, 400);  // 500 expected, standard deviation 21
    EXPECT_LT(count, 600);
  }
}

TEST(DrawDigits, InkCoversAsMuchAsInMnistAndAvoidsTheBorder) {
  const Dataset digits = draw_digits(1000, 5);
  const int64_t sum = std::accumulate(digits.images.begin(), digits.images.end(), int64_t{0});
  const double mean = static_cast<double>(sum) / static_cast<double>(digits.images.size());
  EXPECT_NEAR(mean, 33.3, 8);  // MNIST's training images: 33.3
  int64_t border = 0;
  for (size_t image = 0; image < digits.images.size(); image += Dataset::kImageBytes) {
    for (size_t i = 0; i < Dataset::kSide; ++i) border += digits.images[image + i] > 0;
  }
  EXPECT_LT(border, 1000 * Dataset::kSide / 100);
}

TEST(DrawDigits, RefusesNegativeCounts) {
  EXPECT_THROW(draw_digits(-1, 1), InvalidArgument);
  EXPECT_THROW(draw_digits(1, 1, -1), InvalidArgument);
  EXPECT_EQ(draw_digits(0, 1).count, 0);
}

TEST(EpochOrder, IsAPermutationFixedBySeedAndEpoch) {
  const std::vector<int64_t> order = epoch_order(1000, 4, 0);
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(sorted[static_cast<size_t>(i)], i);
  EXPECT_NE(order, sorted);
  EXPECT_EQ(order, epoch_order(1000, 4, 0));
  EXPECT_NE(order, epoch_order(1000, 4, 1));
  EXPECT_NE(order, epoch_order(1000, 5, 0));
  EXPECT_EQ(epoch_order(10, 1, 0), (std::vector<int64_t>{4, 1, 5, 7, 2, 8, 9, 6, 3, 0}));
}

TEST(EpochOrder, PutsEveryImageInEveryPlaceEquallyOften) {
  std::array<int, 4> first{};
  for (int64_t epoch = 0; epoch < 2000; ++epoch) ++first.at(static_cast<size_t>(epoch_order(4, 9, epoch)[0]));
  for (const int count : first) EXPECT_NEAR(count, 500, 100);  // standard deviation 19
}

}  // namespace
}  // namespace headroom
