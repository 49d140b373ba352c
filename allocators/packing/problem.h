// A packing problem in its simplest form: sizes in units, and columns of time instead of steps. A column is a
// step at which the set of live blocks is maximal: blocks that are live together share a column.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace headroom::packing {

struct Item {
  int64_t size = 0;
  int first = 0, end = 0;  // lives in the columns [first, end)
  int64_t alignment = 1;
  int64_t steps = 0;  // length of its life, as the caller counts time

  int columns() const { return end - first; }
  bool meets(const Item& other) const { return first < other.end && other.first < end; }
  int64_t aligned(int64_t offset) const {
    return alignment == 1 ? offset : (offset + alignment - 1) / alignment * alignment;
  }
};

struct Problem {
  std::vector<Item> items;
  int columns = 0;

  // The units live in each column.
  std::vector<int64_t> live() const {
    std::vector<int64_t> units(static_cast<size_t>(columns) + 1);
    for (const Item& item : items) {
      units[static_cast<size_t>(item.first)] += item.size;
      units[static_cast<size_t>(item.end)] -= item.size;
    }
    std::partial_sum(units.begin(), units.end(), units.begin());
    units.pop_back();
    return units;
  }
  // The most units live in one column: no placement is lower.
  int64_t lower_bound() const {
    const std::vector<int64_t> units = live();
    return units.empty() ? 0 : *std::ranges::max_element(units);
  }
};

// An offset for each item, and the top of the highest one.
struct Placement {
  std::vector<int64_t> offsets;
  int64_t height = 0;
};

// Throws InvalidArgument: more is live at once than offsets can count.
[[noreturn]] void refuse_to_pack();

// Makes columns of the times in which the items' lives are given.
void compress_columns(Problem& problem);

}  // namespace headroom::packing
