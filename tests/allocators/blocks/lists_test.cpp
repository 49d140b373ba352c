// The lists and tables that strategies keep their blocks in, against plain models of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "allocators/blocks/counted_bits.h"
#include "allocators/blocks/first_fit_list.h"
#include "allocators/blocks/size_bins.h"
#include "base/offset_table.h"
#include "tests/allocators/helpers.h"

namespace headroom {
namespace {

// Few keys, which come back again and again, and many, so that leaves are cut and joined.
TEST(FirstFitList, FindsTheFirstKeyThatHoldsEnough) {
  Random random(1);
  for (const int64_t keys : {40, 300, 20'000}) {
    FirstFitList list;
    std::map<int32_t, std::pair<int32_t, int32_t>> plain;  // entries that hold something: amount and number
    for (int i = 0; i < 30'000; ++i) {
      // Fills up for a third of the time, then stays, then empties.
      const int64_t share = i < 10'000 ? 70 : i < 20'000 ? 50 : 20;
      const auto key = static_cast<int32_t>(random.below(keys) * 7);
      if (random.below(100) < share) {
        plain[key] = {static_cast<int32_t>(1 + random.below(1000)), i};
        list.prepare(plain.size());
        list.set(key, plain[key].first, i);
      } else if (!plain.empty()) {
        const auto gone = plain.lower_bound(key) == plain.end() ? plain.begin() : plain.lower_bound(key);
        list.set(gone->first, 0, 0);
        plain.erase(gone);
      }
      const auto amount = static_cast<int32_t>(1 + random.below(1100));
      const auto found = std::find_if(plain.begin(), plain.end(),
                                      [&](const auto& each) { return each.second.first >= amount; });
      ASSERT_EQ(list.first_with(amount), found == plain.end() ? -1 : found->second.second) << "step " << i;
      const auto above = plain.upper_bound(key);
      ASSERT_EQ(list.first_above(key), above == plain.end() ? -1 : above->second.second) << "step " << i;
      if (i % 1000 != 0) continue;
      std::vector<int32_t> listed, expected;
      list.for_each_with(amount, [&](int32_t number) { listed.push_back(number); });
      for (const auto& [each, held] : plain) {
        if (held.first >= amount) expected.push_back(held.second);
      }
      ASSERT_EQ(listed, expected) << "step " << i;
    }
  }
}

// Pieces of the same size, so that a search for a larger one finds none in most leaves.
TEST(FirstFitList, ASearchAmongFourTimesAsManyLooksAtLittleMore) {
  const auto visits = [](int32_t keys) {
    FirstFitList list;
    list.prepare(static_cast<size_t>(keys));
    Random random(1);
    for (int32_t i = 0; i < keys; ++i) list.set(7 * i, 10, i);
    for (int32_t i = 0; i < 1000; ++i) {
      const auto key = static_cast<int32_t>(keys / 2 + random.below(keys / 2));
      list.set(7 * key, 20, key);
      EXPECT_EQ(list.first_with(15), key);
      list.set(7 * key, 10, key);
    }
    return list.visits();
  };
  EXPECT_GT(visits(10'000), 0);
  EXPECT_LE(visits(40'000), 3 * visits(10'000));
}

TEST(SizeBins, ClassesAreOrderedAndFineAndTheNextFilledOneIsFound) {
  Random random(2);
  SizeBins bins;
  std::set<int> filled;
  for (int i = 0; i < 20000; ++i) {
    const int64_t bytes = (1 + random.below(int64_t{1} << random.below(31))) * SizeBins::kUnit;
    const int bin = SizeBins::of(bytes);
    ASSERT_LE(SizeBins::of(bytes - SizeBins::kUnit), bin);
    ASSERT_LT(bin, SizeBins::of(bytes + bytes / 16 + SizeBins::kUnit));
    ASSERT_LT(bin, SizeBins::kCount);
    filled.insert(bin);
    bins.set(bin);
    if (i % 3 != 0) {
      bins.clear(*filled.begin());
      filled.erase(filled.begin());
    }
    const int from = static_cast<int>(random.below(SizeBins::kCount));
    const auto next = filled.lower_bound(from);
    ASSERT_EQ(bins.first_from(from), next == filled.end() ? -1 : *next);
  }
}

TEST(OffsetTable, FindsWhatWasPutInAndNothingElse) {
  Random random(3);
  OffsetTable table(SizeBins::kUnit);
  std::map<int64_t, int32_t> plain;
  for (int32_t i = 0; i < 50000; ++i) {
    // Few offsets, and many that lie side by side, so that they collide.
    const int64_t offset = random.below(3000) * SizeBins::kUnit;
    if (plain.contains(offset)) {
      table.erase(offset);
      plain.erase(offset);
    } else {
      table.prepare();
      table.insert(offset, i);
      plain[offset] = i;
    }
    const int64_t asked = random.below(3000) * SizeBins::kUnit;
    const auto found = plain.find(asked);
    ASSERT_EQ(table.find(asked), found == plain.end() ? OffsetTable::kNone : found->second) << "step " << i;
  }
}

TEST(CountedBits, CountsAndFindsRunsAsAPlainArrayDoes) {
  Random random(9);
  for (const int64_t size : {1, 63, 64, 65, 128, 1000}) {
    CountedBits bits;
    bits.reset(size / 2);
    bits.grow(size);
    std::vector<bool> model(static_cast<size_t>(size));
    for (int step = 0; step < 300; ++step) {
      const int64_t first = random.below(size), count = 1 + random.below(size - first);
      const bool value = random.below(2) == 0;
      for (int64_t at = first; at < first + count; ++at) {
        bits.set(at, value);
        model[static_cast<size_t>(at)] = value;
      }
      bits.count();
      int64_t before = 0;
      std::vector<bool> runs(model.size());
      bits.for_each_run([&](int64_t from, int64_t length) {
        ASSERT_LE(from + length, size);
        ASSERT_TRUE(from == 0 || !model[static_cast<size_t>(from - 1)]) << "a run begins before " << from;
        std::fill_n(runs.begin() + from, length, true);
      });
      ASSERT_EQ(runs, model);
      for (int64_t at = 0; at <= size; ++at) {
        ASSERT_EQ(bits.before(at), before);
        if (at < size && model[static_cast<size_t>(at)]) ++before;
      }
    }
  }
}

}  // namespace
}  // namespace headroom
