// The addresses of segments, as recorded on an H200.
#include "allocators/strategies/segment_places.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/bytes.h"

namespace headroom {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Takes the gap above the code of a new context, which is the last choice but one: a new unit.
SegmentPlaces places_in_units(int64_t kernels_after = kNever) {
  SegmentPlaces places(kernels_after);
  places.take(24 * kMiB, 1);
  return places;
}

TEST(SegmentPlaces, LieAtTheLowEndOfFallingUnitsAndTheNewestRestServesFirst) {
  SegmentPlaces places = places_in_units();
  const int64_t unit = places_in_units().take(32 * kMiB, 1);
  // BERT on the card: 20 MiB each, then 12 MiB each.
  for (int i = 0; i < 4; ++i) EXPECT_EQ(places.take(20 * kMiB, 1), unit - i * 32 * kMiB);
  for (int i = 3; i >= 0; --i) EXPECT_EQ(places.take(12 * kMiB, 1), unit - i * 32 * kMiB + 20 * kMiB);
  EXPECT_EQ(places.take(78 * kMiB, 1), unit - 6 * 32 * kMiB);
  EXPECT_EQ(places.take(16 * kMiB, 1), unit - 6 * 32 * kMiB + 78 * kMiB);
}

TEST(SegmentPlaces, ServeAgainAndAnEmptyChunkLeavesItsAddresses) {
  SegmentPlaces places = places_in_units();
  const int64_t lower = places.take(36 * kMiB, 1);
  const int64_t second = places.take(64 * kMiB, 1);
  const int64_t rest = places.take(20 * kMiB, 1);
  EXPECT_EQ(rest, lower + 36 * kMiB);
  places.give_back(lower, 36 * kMiB);
  EXPECT_EQ(places.take(34 * kMiB, 1), lower);
  places.give_back(lower, 34 * kMiB);
  places.give_back(rest, 20 * kMiB);
  EXPECT_EQ(places.take(86 * kMiB, 1), second - 96 * kMiB);  // the hole is too small
  EXPECT_EQ(places.take(64 * kMiB, 1), lower);
}

TEST(SegmentPlaces, KernelsLeaveTheStacksOfTheContextToSegments) {
  SegmentPlaces places = places_in_units(2);
  const int64_t small = places.take(2 * kMiB, 1);  // above the stacks, so that their chunk stays
  const int64_t before = places.take(20 * kMiB, 2);
  EXPECT_LT(before, small);
  const int64_t after = places.take(20 * kMiB, 3);
  EXPECT_GT(after, before);
  EXPECT_LT(after, small);
  EXPECT_EQ(places.take(20 * kMiB, 3), after + 20 * kMiB);

  SegmentPlaces empty = places_in_units(2);
  const int64_t unit = empty.take(32 * kMiB, 1);
  EXPECT_GT(empty.take(32 * kMiB, 3), unit);  // their addresses are the highest hole
}

}  // namespace
}  // namespace headroom
