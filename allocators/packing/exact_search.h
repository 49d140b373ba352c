// Decides whether items fit below a capacity: a depth-first search that is complete if it has time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "allocators/packing/problem.h"

namespace headroom::packing {

// The preference among items that can lie equally low: long lifetimes, columns with much left to place,
// columns at which earlier branches failed.
enum class SearchOrder : uint8_t { kLife, kCrowding, kCrowdingLife, kConflictsLife, kConflictsArea };

struct SearchSettings {
  SearchOrder order = SearchOrder::kLife;
  // True to find, at a cost, items that cannot be the next ones in their columns.
  bool is_thorough = false;
  int64_t max_nodes = 0;  // partial placements
  int64_t max_work = 0;   // items and columns looked at
};

// Places items upwards, each as low as those below allow (the canonical placements of Moffitt, "MiniMalloc",
// ASPLOS 2023). It gives up on a branch when the items that a column still waits for do not fit above its
// floor, when an item could move down, or when nothing is left that could hold up an item that was passed
// over. Items that no longer meet are searched apart.
class ExactSearch {
 public:
  enum class Answer : uint8_t { kFits, kDoesNotFit, kUndecided };

  explicit ExactSearch(const Problem& problem);

  // kDoesNotFit is proof. Searches learn from earlier ones where branches fail.
  Answer fits_below(int64_t capacity, const SearchSettings& settings);

  // After kFits.
  const std::vector<int64_t>& offsets() const { return offsets_; }
  int64_t work() const { return work_; }

 private:
  // Items that meet each other, directly or through others; a slice of lists_, those placed included.
  struct Part {
    size_t begin, end;
    int first_column, end_column;
    size_t left;  // items not placed
  };
  struct Candidate {
    int64_t offset;
    int rank, item;
  };
  // One choice: which item of the part lies next above `floor`.
  struct Choice {
    Part part;
    size_t parent;  // the choice that made this part; its own index for the first one
    int64_t floor;  // floor of later items; at the floor only items from min_rank on
    int min_rank;
    size_t candidates_begin, next_candidate, candidates_end;
    size_t parts_begin, next_part, parts_end;  // parts that the current candidate leaves to place
    size_t placed, lifts, bounds, floors, ranks, list_end;  // to undo
    bool is_free = false;  // the current candidate meets nothing that is left
  };
  struct Lift {
    int item;
    int64_t before;
  };
  struct FloorChange {
    int column, lowest;
    int64_t floor;
  };
  struct RankChange {
    int item, rank;
  };

  const Item& item(int index) const { return problem_.items[static_cast<size_t>(index)]; }
  template <typename T>
  static T& at(std::vector<T>& values, int index) {
    return values[static_cast<size_t>(index)];
  }

  void reset();
  void sort(Part part);
  // Collects the candidates of the newest choice; leaves none if the branch is dead.
  void find_candidates();
  bool has_holder(const Part& part, int index, int64_t below);
  // Places the item; false when a column has no room left for the rest.
  bool place(Choice& choice, const Candidate& candidate);
  bool raise_floors(const Part& part, int64_t floor);
  bool raise_bounds(const Part& part, int64_t floor);
  bool fail(int column);
  void undo(const Choice& choice);
  // Divides the rest of the choice's part where no item crosses from one column to the next.
  void divide(Choice& choice, bool is_cut);
  bool open_next_part();

  const Problem& problem_;
  std::vector<size_t> column_begin_;  // in column_items_
  std::vector<int> column_items_;
  int64_t capacity_ = 0;
  SearchSettings settings_;
  // support: top of the placed items below an item; bound: lower bound of the item's offset
  std::vector<int64_t> offsets_, support_, bound_;
  std::vector<char> placed_;
  std::vector<int> rank_, holder_;
  std::vector<int64_t> left_, floor_;   // by column: units not placed; the lowest support of their items
  std::vector<int> lowest_, crossing_;  // by column: an item with that support; items also in the next one
  std::vector<int> placed_order_, lists_;
  std::vector<Lift> lifts_, bounds_;
  std::vector<FloorChange> floors_;
  std::vector<RankChange> ranks_;
  std::vector<Candidate> candidates_;
  std::vector<Part> parts_;
  std::vector<Choice> choices_;
  std::vector<int64_t> conflicts_;                  // by column: how often it had no room
  std::vector<int64_t> most_conflicts_, crowding_;  // by item, as it was last sorted
  std::vector<std::pair<int64_t, int>> starts_,
      ends_;  // starts and ends of a column's items, for raise_bounds
  int64_t work_ = 0, nodes_ = 0;
};

}  // namespace headroom::packing
