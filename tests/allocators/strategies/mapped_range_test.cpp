// The bookkeeping of `mapped`, against plain models of it.
#include "allocators/strategies/mapped_range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/allocators/helpers.h"

namespace headroom {
namespace {

constexpr int64_t kRangePage = 2 << 20;

// A page has memory or has not, and blocks lie in pages that have.
class Model {
 public:
  Model(MappedRange& range, int64_t least_bytes) : range_(range), least_bytes_(least_bytes) {}

  void allocate(int64_t bytes) {
    int64_t offset = range_.take(bytes);
    if (offset < 0) {
      const int64_t idle = range_.idle_pages();
      const MappedRange::Place place = range_.find_place(bytes, idle);
      ASSERT_GE(place.offset, 0);
      std::vector<PageRow> rows;
      range_.occupy(place, bytes, rows);
      std::vector<int64_t> missing;
      for (const PageRow& row : rows) {
        for (int64_t page = row.first; page < row.first + row.count; ++page) missing.push_back(page);
      }
      ASSERT_EQ(static_cast<int64_t>(missing.size()), place.missing_pages);
      for (const int64_t page : missing) {
        ASSERT_TRUE(mapped_.insert(page).second) << "mapped twice";
      }
      offset = place.offset;
      // Never more new pages than a block needs that shares none with its neighbors.
      ASSERT_LE(place.new_pages, std::max<int64_t>(0, (bytes + kRangePage - 1) / kRangePage - idle));
    }
    ASSERT_EQ(offset % SizeBins::kUnit, 0);
    const auto next = live_.lower_bound(offset);
    ASSERT_TRUE(next == live_.end() || offset + bytes <= next->first) << "overlap";
    ASSERT_TRUE(next == live_.begin() || std::prev(next)->first + std::prev(next)->second <= offset)
        << "overlap";
    for (int64_t page = offset / kRangePage; page * kRangePage < offset + bytes; ++page) {
      ASSERT_TRUE(mapped_.contains(page));
      ++blocks_on_[page];
    }
    live_[offset] = bytes;
  }

  void give_back(int64_t number) {
    const auto block = std::next(live_.begin(), number);
    ASSERT_EQ(range_.give_back(block->first, block->second + SizeBins::kUnit, time_), MappedRange::kNone);
    ASSERT_NE(range_.give_back(block->first, block->second, ++time_), MappedRange::kNone);
    ASSERT_EQ(range_.give_back(block->first, block->second, time_), MappedRange::kNone);
    for (int64_t page = block->first / kRangePage; page * kRangePage < block->first + block->second; ++page) {
      if (--blocks_on_[page] == 0) blocks_on_.erase(page);
    }
    live_.erase(block);
  }

  void unmap(int64_t most) {
    const MappedRange::IdlePages idle = range_.oldest_idle_pages(most);
    ASSERT_LE(idle.count, most);
    ASSERT_EQ(idle.count > 0, range_.idle_pages() > 0);
    if (idle.count == 0) return;
    range_.unmap(idle.first, idle.count);
    for (int64_t page = idle.first; page < idle.first + idle.count; ++page) {
      ASSERT_FALSE(blocks_on_.contains(page)) << "in use";
      ASSERT_EQ(mapped_.erase(page), 1u) << "not mapped";
    }
  }

  // Checks if a block could lie there, the pages missing then, and the number of adjacent idle pages.
  void look_at(int64_t offset, int64_t bytes) {
    const int64_t first = offset / kRangePage, end = (offset + bytes - 1) / kRangePage + 1;
    std::vector<PageRow> rows;
    const MappedRange::Place place = range_.place_at(offset, bytes, rows);
    const auto next = live_.lower_bound(offset);
    const bool is_free =
        (next == live_.end() || offset + bytes <= next->first) &&
        (next == live_.begin() || std::prev(next)->first + std::prev(next)->second <= offset);
    ASSERT_EQ(place.offset, is_free ? offset : -1);
    std::set<int64_t> missing;
    for (const PageRow& row : rows) {
      for (int64_t page = row.first; page < row.first + row.count; ++page) missing.insert(page);
    }
    for (int64_t page = first; is_free && page < end; ++page) {
      ASSERT_EQ(missing.contains(page), !mapped_.contains(page)) << page;
    }
    int64_t idle = 0;
    for (int64_t page = first; mapped_.contains(page) && !blocks_on_.contains(page); ++page) ++idle;
    ASSERT_EQ(range_.idle_pages_from(first), idle);
  }

  void check() const {
    ASSERT_EQ(range_.idle_pages(), static_cast<int64_t>(mapped_.size() - blocks_on_.size()));
    int64_t largest = 0, end = 0;
    const auto piece_until = [&](int64_t begin) {  // mapped bytes in one piece between two blocks
      int64_t from = end;
      for (int64_t page = from / kRangePage; page * kRangePage < begin; ++page) {
        if (mapped_.contains(page)) continue;
        largest = std::max(largest, std::max(from, page * kRangePage) - from);
        from = (page + 1) * kRangePage;
      }
      largest = std::max(largest, begin - from);
    };
    for (const auto& [offset, bytes] : live_) {
      piece_until(offset);
      end = offset + bytes;
    }
    piece_until((mapped_.empty() ? 0 : *mapped_.rbegin() + 1) * kRangePage);
    ASSERT_EQ(range_.largest_mapped_piece(), largest);
  }

  int64_t blocks() const { return static_cast<int64_t>(live_.size()); }
  int64_t mapped_pages() const { return static_cast<int64_t>(mapped_.size()); }
  int64_t random_size(Random& random) const {
    const int64_t bytes = least_bytes_ + random.below(int64_t{1} << (9 + random.below(15)));
    return bytes / SizeBins::kUnit * SizeBins::kUnit;
  }

 private:
  MappedRange& range_;
  const int64_t least_bytes_;
  std::map<int64_t, int64_t> live_;  // offset -> bytes
  std::set<int64_t> mapped_;
  std::map<int64_t, int64_t> blocks_on_;  // page -> live blocks that touch it
  int64_t time_ = 0;
};

class MappedRangeTest : public testing::TestWithParam<MappedRange::Fit> {};

TEST_P(MappedRangeTest, AgreesWithAPlainModelOfPagesUnderRandomLoad) {
  const int64_t least =
      GetParam() == MappedRange::Fit::kFirst ? MappedRange::kSmallestOfFirstFit + 512 : SizeBins::kUnit;
  for (const uint64_t seed : {1u, 2u, 3u, 4u}) {
    Random random(seed);
    MappedRange range(int64_t{1} << 36, kRangePage, GetParam());
    Model model(range, least);
    for (int i = 0; i < 4000; ++i) {
      const int64_t kind = random.below(100);
      // Grows for the first half and shrinks in the second.
      if (kind < (i < 2000 ? 52 : 40)) {
        model.allocate(model.random_size(random));
      } else if (kind < 95) {
        if (model.blocks() > 0) model.give_back(random.below(model.blocks()));
      } else {
        model.unmap(1 + random.below(20));
      }
      model.look_at(random.below(1 << 20) * SizeBins::kUnit, model.random_size(random));
      if (i % 50 == 0) model.check();
      ASSERT_FALSE(HasFatalFailure()) << "step " << i << " of seed " << seed;
    }
    while (model.blocks() > 0) model.give_back(random.below(model.blocks()));
    model.check();
    EXPECT_EQ(range.idle_pages(), model.mapped_pages());  // all of it is whole again
    while (model.mapped_pages() > 0 && !HasFatalFailure()) model.unmap(1000);
    EXPECT_EQ(range.largest_mapped_piece(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Fits, MappedRangeTest,
                         testing::Values(MappedRange::Fit::kBest, MappedRange::Fit::kFirst),
                         [](const auto& row) -> std::string {
                           return row.param == MappedRange::Fit::kBest ? "best" : "first";
                         });

// A program that allocates more and more has no idle pages to be looked for.
TEST(MappedRangeSearch, LooksAtFreePiecesAloneWhileAProgramGrows) {
  const auto searched = [](int blocks) {
    MappedRange range(int64_t{blocks} * kRangePage, kRangePage, MappedRange::Fit::kFirst);
    std::vector<PageRow> missing;
    for (int i = 0; i < blocks; ++i) {
      const int64_t bytes = 768 * 1024 + 512 * (i % 64);
      if (range.take(bytes) >= 0) continue;
      const MappedRange::Place place = range.find_place(bytes, range.idle_pages());
      missing.clear();
      range.occupy(place, bytes, missing);
    }
    return range.pieces_searched();
  };
  EXPECT_GT(searched(1000), 0);
  EXPECT_LE(searched(4000), 5 * searched(1000));
}

// Returns the number of pieces searched for places while blocks of up to `most_units` of 512 B come and go,
// and leave as many free pieces as there are blocks. Idle pages move to blocks that need some.
int64_t pieces_searched(int64_t live_blocks, int64_t most_units) {
  MappedRange range(int64_t{1} << 40, kRangePage, MappedRange::Fit::kFirst);
  Random random(1);
  std::vector<std::pair<int64_t, int64_t>> live;
  std::vector<PageRow> missing;
  for (int64_t i = 0; i < 6 * live_blocks; ++i) {
    if (std::ssize(live) == live_blocks || (i > live_blocks && random.below(2) == 0)) {
      std::swap(live[static_cast<size_t>(random.below(std::ssize(live)))], live.back());
      range.give_back(live.back().first, live.back().second, i);
      live.pop_back();
      continue;
    }
    const int64_t bytes = (129 + random.below(most_units - 129)) * SizeBins::kUnit;
    int64_t offset = range.take(bytes);
    if (offset < 0) {
      const MappedRange::Place place = range.find_place(bytes, range.idle_pages());
      offset = place.offset;
      missing.clear();
      range.occupy(place, bytes, missing);
      const MappedRange::IdlePages idle = range.oldest_idle_pages(place.missing_pages);
      if (idle.count > 0) range.unmap(idle.first, idle.count);
    }
    live.emplace_back(offset, bytes);
  }
  return range.pieces_searched();
}

TEST(MappedRangeSearch, LooksAtLittleMoreForEachPlaceAmongFourTimesAsManyBlocks) {
  EXPECT_GT(pieces_searched(1000, 2000), 0);
  EXPECT_LE(pieces_searched(4000, 2000), 6 * pieces_searched(1000, 2000));
}

}  // namespace
}  // namespace headroom
