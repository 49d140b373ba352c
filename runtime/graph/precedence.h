// The transitive order of the items of a sequence, from the direct predecessors of each. Uses memory and time
// in proportion to those, not to the pairs of items. Knows nothing about the items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headroom {

// The direct predecessors of each item of a sequence, as positions before its own.
class Predecessors {
 public:
  explicit Predecessors(size_t count) { begins_.reserve(count + 1); }

  // Add the items in order: an item's predecessors, then finish it.
  void add(size_t predecessor) { items_.push_back(static_cast<int>(predecessor)); }
  void finish_item() { begins_.push_back(static_cast<int>(items_.size())); }

  size_t count() const { return begins_.size() - 1; }
  size_t links() const { return items_.size(); }
  std::span<const int> of(size_t item) const {
    const auto begin = static_cast<size_t>(begins_[item]);
    return std::span(items_).subspan(begin, static_cast<size_t>(begins_[item + 1]) - begin);
  }

 private:
  std::vector<int> begins_ = {0};  // by item, and the end of the last
  std::vector<int> items_;
};

// Answers with limited work, so that a graph made to be hard gets a safe answer instead of a late one: an
// ancestor may be missed, and an item be called unordered with a later one that follows from it.
class Precedence {
 public:
  // All searches of has() look at up to this many links and 64 times those that there are; so may a call of
  // last_unordered(). With thousands of items nothing is given up.
  explicit Precedence(Predecessors predecessors, int64_t most_visits = 10'000'000);

  // Returns true if `item` follows from `ancestor`, directly or not.
  bool has(size_t item, size_t ancestor);

  // Returns, for each item, the last of those `later`, in ascending order, that comes after it in the
  // sequence without following from it; -1 if all follow.
  std::vector<int> last_unordered(std::span<const int> later);

  // Links that the searches have looked at so far.
  int64_t visits() const { return visits_; }

 private:
  class OpenItems;

  std::span<const int> successors_of(size_t item) const {
    const auto begin = static_cast<size_t>(successor_begins_[item]);
    return std::span(successors_).subspan(begin, static_cast<size_t>(successor_begins_[item + 1]) - begin);
  }

  // Returns true if it is immediately known that `item` is `ancestor` or follows from it.
  bool is_seen(size_t item, size_t ancestor) const;

  Predecessors predecessors_;
  int64_t most_visits_;
  std::vector<int> successor_begins_, successors_;
  // Each item is on one chain, a path in which each item is a direct predecessor of the next. `before` is the
  // last predecessor of its first item, `after` the successor of its last item, if any.
  struct Chain {
    int before = -1, after = -1;
  };
  std::vector<int> chain_of_, positions_;  // by item
  std::vector<Chain> chains_;
  // State of searches: the last position on each chain that is known to come before, and the search that
  // found it.
  std::vector<int> reached_, reached_in_;  // by chain
  std::vector<int> seen_in_;               // by item
  std::vector<int> pending_;
  int search_ = 0;
  int64_t visits_ = 0;
};

}  // namespace headroom
