#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/tensor.h"

namespace headroom {
namespace {

TEST(Shape, KnowsRankElementsAndText) {
  const Shape images = {64, 28, 28, 1};
  EXPECT_EQ(images.rank(), 4);
  EXPECT_EQ(images.elements(), 64 * 28 * 28);
  EXPECT_EQ(images[1], 28);
  EXPECT_EQ(images.last(), 1);
  EXPECT_EQ(to_string(images), "[64,28,28,1]");
  EXPECT_EQ(images.with(0, 8), (Shape{8, 28, 28, 1}));
}

TEST(Shape, IsAScalarByDefault) {
  EXPECT_EQ(Shape().rank(), 0);
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ(Shape().last(), 1);
  EXPECT_EQ(to_string(Shape()), "[]");
}

TEST(Shape, OfAnEmptyTensorHasNoElements) {
  EXPECT_EQ((Shape{0, 5}).elements(), 0);
  EXPECT_NE((Shape{0, 5}), (Shape{5, 0}));
  EXPECT_NE((Shape{2, 1}), (Shape{2}));
}

TEST(Shape, RefusesWhatIsNoShape) {
  EXPECT_THROW((Shape{-1}), InvalidArgument);
  EXPECT_THROW((Shape{2, -3}), InvalidArgument);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1}), InvalidArgument);
  EXPECT_THROW((Shape{int64_t{1} << 40, int64_t{1} << 40}), InvalidArgument);
  EXPECT_THROW((Shape{0, int64_t{1} << 40, int64_t{1} << 40}),
               InvalidArgument);  // its strides would overflow
  EXPECT_THROW((Shape{2, int64_t{1} << 58}.with(0, 3)), InvalidArgument);
  const std::vector<int64_t> too_many(7, 1);
  EXPECT_THROW(Shape{std::span<const int64_t>(too_many)}, InvalidArgument);
}

TEST(Shape, StridesAreRowMajor) {
  const auto strides = strides_of({2, 3, 4});
  EXPECT_EQ(strides[0], 12);
  EXPECT_EQ(strides[1], 4);
  EXPECT_EQ(strides[2], 1);
}

struct BroadcastCase {
  Shape a, b;
  bool fits;
  Shape result;
};

class Broadcast : public testing::TestWithParam<BroadcastCase> {};

TEST_P(Broadcast, FollowsNumPyBothWays) {
  const BroadcastCase& c = GetParam();
  for (const auto& [a, b] : {std::pair(c.a, c.b), std::pair(c.b, c.a)}) {
    Shape result;
    ASSERT_EQ(broadcast(a, b, &result), c.fits);
    if (c.fits) {
      EXPECT_EQ(result, c.result);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Broadcast,
    testing::Values(BroadcastCase{{4, 3}, {3}, true, {4, 3}}, BroadcastCase{{4, 1}, {1, 3}, true, {4, 3}},
                    BroadcastCase{{}, {2, 2}, true, {2, 2}}, BroadcastCase{{0, 3}, {1}, true, {0, 3}},
                    BroadcastCase{{4, 3}, {4}, false, {}}, BroadcastCase{{2, 3}, {3, 2}, false, {}}));

TEST(TensorSpec, CountsBytesAndPrintsItself) {
  const TensorSpec spec{DType::kF32, {64, 26, 26, 32}};
  EXPECT_EQ(spec.bytes(), 64 * 26 * 26 * 32 * 4);
  EXPECT_EQ(to_string(spec), "f32[64,26,26,32]");
  EXPECT_EQ((TensorSpec{DType::kU8, {7}}).bytes(), 7);
}

}  // namespace
}  // namespace headroom
