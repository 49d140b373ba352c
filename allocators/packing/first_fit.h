// Places items one by one, each in a gap between those placed before that live at the same time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "allocators/packing/problem.h"

namespace headroom::packing {

enum class Fit : uint8_t { kFirst, kBest };  // the lowest gap, or the tightest

class FirstFit {
 public:
  explicit FirstFit(const Problem& problem);

  // Removes all items.
  void clear();
  // Places an item where the caller knows that it fits.
  void put(int index, int64_t offset);
  void place(int index, Fit fit);
  // Places all items in that order. False when it takes more than max_work.
  bool place_all(std::span<const int> order, Fit fit, int64_t max_work);

  const Placement& placement() const { return placement_; }
  int64_t work() const { return work_; }

 private:
  struct Placed {
    int64_t offset, top;
    int first, end;
  };
  // Sorted by offset, in chunks of bounded size.
  class Shelf {
   public:
    void insert(const Placed& placed);
    void clear() { chunks_.clear(); }
    class Cursor;  // walks upwards

   private:
    std::vector<std::vector<Placed>> chunks_;
  };
  // Shelves of equal spans of columns; an item is on all shelves that it meets.
  struct Level {
    int columns;  // columns of a shelf
    std::vector<Shelf> shelves;
  };

  const Problem& problem_;
  std::vector<Level> levels_;  // from short to long shelves
  Placement placement_;
  int64_t work_ = 0;
};

}  // namespace headroom::packing
