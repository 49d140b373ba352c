// Packing of many blocks: placements are valid, close to the largest live set, and cost work that grows with
// the number of blocks.
#include "allocators/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/random.h"

namespace headroom {
namespace {

using Blocks = std::vector<PlannedBlock>;

class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(random_words(seed_, 0, next_++)[0] % static_cast<uint64_t>(limit));
  }

 private:
  const uint64_t seed_;
  uint64_t next_ = 0;
};

// All live at once; given back in the reverse order, or in the order they came.
Blocks stack(int count) {
  Draw draw(1);
  Blocks blocks;
  for (int i = 0; i < count; ++i) blocks.push_back({256 * (1 + draw.below(4096)), i, 2 * count - i});
  return blocks;
}
Blocks queue(int count) {
  Draw draw(2);
  Blocks blocks;
  for (int i = 0; i < count; ++i) blocks.push_back({256 * (1 + draw.below(4096)), i, count + i});
  return blocks;
}
// Lifetimes from one step to a thousand.
Blocks churn(int count) {
  Draw draw(3);
  Blocks blocks;
  for (int i = 0; i < count; ++i) {
    const auto steps = static_cast<int>(1 + draw.below(int64_t{1} << draw.below(11)));
    blocks.push_back({256 * (1 + draw.below(4096)), i, i + steps});
  }
  return blocks;
}

// The largest sum live at once, and whether any two live blocks overlap.
std::pair<int64_t, bool> sweep(const Blocks& blocks) {
  std::vector<std::tuple<int, bool, size_t>> events;  // frees of a step come first
  for (size_t i = 0; i < blocks.size(); ++i) {
    events.emplace_back(blocks[i].first, true, i);
    events.emplace_back(blocks[i].end, false, i);
  }
  std::sort(events.begin(), events.end());
  std::map<int64_t, int64_t> live;  // end by offset
  int64_t bytes = 0, largest = 0;
  bool overlaps = false;
  for (const auto& [step, begins, index] : events) {
    const PlannedBlock& block = blocks[index];
    bytes += begins ? block.bytes : -block.bytes;
    largest = std::max(largest, bytes);
    if (!begins) {
      live.erase(block.offset_bytes);
      continue;
    }
    const auto [at, is_new] = live.emplace(block.offset_bytes, block.offset_bytes + block.bytes);
    overlaps |= !is_new || (std::next(at) != live.end() && std::next(at)->first < at->second) ||
                (at != live.begin() && std::prev(at)->second > at->first);
  }
  return {largest, overlaps};
}

struct Packed {
  double ratio = 0;  // to the largest live set
  int64_t work = 0;
};

Packed pack_and_check(Blocks blocks) {
  Packed packed;
  const int64_t height = pack(blocks, &packed.work);
  const auto [bound, overlaps] = sweep(blocks);
  EXPECT_FALSE(overlaps);
  EXPECT_GE(height, bound);
  for (const PlannedBlock& block : blocks) {
    EXPECT_GE(block.offset_bytes, 0);
    EXPECT_LE(block.offset_bytes + block.bytes, height);
  }
  packed.ratio = static_cast<double>(height) / static_cast<double>(bound);
  return packed;
}

TEST(PackMany, WorkGrowsWithTheNumberOfBlocks) {
  for (Blocks (*const make)(int) : {stack, queue}) {
    const Packed one = pack_and_check(make(6'000)), four = pack_and_check(make(24'000));
    EXPECT_EQ(one.ratio, 1);
    EXPECT_EQ(four.ratio, 1);
    EXPECT_LE(four.work, 5 * one.work);
  }
}

TEST(PackMany, RandomLifetimesStayNearTheLargestLiveSet) {
  EXPECT_LE(pack_and_check(churn(5'000)).ratio, 1.1);
  constexpr int kMany = 70'000;  // pairs of so many are not looked at
  const Packed many = pack_and_check(churn(kMany));
  EXPECT_LE(many.ratio, 1.1);
  EXPECT_LE(many.work, 7 * kMany);
}

TEST(PackMany, TheSameBlocksGetTheSamePlaces) {
  Blocks one = churn(6'000), other = one;
  pack(one);
  pack(other);
  EXPECT_TRUE(std::equal(one.begin(), one.end(), other.begin(),
                         [](const auto& a, const auto& b) { return a.offset_bytes == b.offset_bytes; }));
}

TEST(PackMany, BlocksOfNoBytesAndOfNoTimeDoNoHarm) {
  Blocks blocks = churn(5'000);
  for (size_t i = 0; i < blocks.size(); i += 7) blocks[i].bytes = 0;
  for (size_t i = 0; i < blocks.size(); i += 11) blocks[i].end = blocks[i].first;
  int64_t bound = 0, live = 0;
  std::map<int, int64_t> changes;
  for (const PlannedBlock& block : blocks) {
    changes[block.first] += block.bytes;
    changes[block.end] -= block.bytes;
  }
  for (const auto& [step, bytes] : changes) bound = std::max(bound, live += bytes);
  EXPECT_LE(static_cast<double>(pack(blocks)), 1.1 * static_cast<double>(bound));
}

}  // namespace
}  // namespace headroom
