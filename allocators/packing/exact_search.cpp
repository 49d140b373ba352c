#include "allocators/packing/exact_search.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>

namespace headroom::packing {

ExactSearch::ExactSearch(const Problem& problem)
    : problem_(problem),
      column_begin_(static_cast<size_t>(problem.columns) + 1),
      conflicts_(static_cast<size_t>(problem.columns)) {
  std::vector<int> count(static_cast<size_t>(problem.columns) + 1);
  for (const Item& item : problem.items) {
    ++at(count, item.first);
    --at(count, item.end);
  }
  size_t begin = 0;
  int live = 0;
  for (int column = 0; column <= problem.columns; ++column) {
    at(column_begin_, column) = begin;
    begin += static_cast<size_t>(live += at(count, column));
  }
  column_items_.resize(begin);
  std::vector<size_t> next = column_begin_;
  for (size_t i = 0; i < problem.items.size(); ++i) {
    for (int column = problem.items[i].first; column < problem.items[i].end; ++column) {
      column_items_[at(next, column)++] = static_cast<int>(i);
    }
  }
}

void ExactSearch::reset() {
  const size_t count = problem_.items.size();
  const auto columns = static_cast<size_t>(problem_.columns);
  offsets_.assign(count, 0);
  support_.assign(count, 0);
  bound_.assign(count, 0);
  placed_.assign(count, 0);
  rank_.assign(count, 0);
  holder_.assign(count, -1);
  most_conflicts_.assign(count, 0);
  crowding_.assign(count, 0);
  left_ = problem_.live();
  floor_.assign(columns, 0);
  lowest_.assign(columns, 0);
  crossing_.assign(columns, 0);
  for (int column = 0; column < problem_.columns; ++column) {
    at(lowest_, column) = column_items_[at(column_begin_, column)];
  }
  for (const Item& item : problem_.items) {
    for (int column = item.first; column + 1 < item.end; ++column) ++at(crossing_, column);
  }
  lists_.resize(count);
  std::iota(lists_.begin(), lists_.end(), 0);
  placed_order_.clear();
  lifts_.clear();
  bounds_.clear();
  floors_.clear();
  ranks_.clear();
  candidates_.clear();
  parts_.clear();
  choices_.clear();
  work_ = nodes_ = 0;
}

ExactSearch::Answer ExactSearch::fits_below(int64_t capacity, const SearchSettings& settings) {
  capacity_ = capacity;
  settings_ = settings;
  reset();
  if (problem_.items.empty()) return Answer::kFits;
  if (*std::ranges::max_element(left_) > capacity) return Answer::kDoesNotFit;
  const Part all{0, lists_.size(), 0, problem_.columns, lists_.size()};
  sort(all);
  ranks_.clear();
  choices_.push_back({all, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, lists_.size()});
  find_candidates();
  while (true) {
    if (nodes_ > settings.max_nodes || work_ > settings.max_work) return Answer::kUndecided;
    Choice& choice = choices_.back();
    undo(choice);
    // An item that overlaps no other blocks none: its other places fail as this one did.
    if (choice.next_candidate == choice.candidates_end || choice.is_free) {
      const size_t parent = choice.parent;
      if (choices_.size() == 1) return Answer::kDoesNotFit;
      choices_.resize(parent + 1);
      continue;
    }
    if (!place(choice, candidates_[choice.next_candidate++])) continue;
    if (!open_next_part()) return Answer::kFits;
  }
}

void ExactSearch::sort(Part part) {
  const auto begin = lists_.begin() + static_cast<ptrdiff_t>(part.begin);
  const auto end = lists_.begin() + static_cast<ptrdiff_t>(part.end);
  const SearchOrder order = settings_.order;
  const bool by_conflicts = order == SearchOrder::kConflictsLife || order == SearchOrder::kConflictsArea;
  const bool by_crowding = order == SearchOrder::kCrowding || order == SearchOrder::kCrowdingLife;
  const bool by_life = order != SearchOrder::kCrowding && order != SearchOrder::kConflictsArea;
  const auto most = [&](const std::vector<int64_t>& of_columns, int index) {
    const auto first = of_columns.begin() + item(index).first;
    work_ += item(index).columns();
    return *std::max_element(first, first + item(index).columns());
  };
  for (auto i = begin; i != end; ++i) {
    if (by_conflicts) at(most_conflicts_, *i) = most(conflicts_, *i);
    if (by_crowding) at(crowding_, *i) = most(left_, *i);
  }
  const auto area = [&](int i) {
    return static_cast<double>(item(i).size) * static_cast<double>(item(i).steps);
  };
  std::sort(begin, end, [&](int a, int b) {
    if (at(most_conflicts_, a) != at(most_conflicts_, b)) {
      return at(most_conflicts_, a) > at(most_conflicts_, b);
    }
    if (at(crowding_, a) != at(crowding_, b)) return at(crowding_, a) > at(crowding_, b);
    const int64_t longer = item(a).steps - item(b).steps;
    if (by_life && longer != 0) return longer > 0;
    if (area(a) != area(b)) return area(a) > area(b);
    return longer != 0 ? longer > 0 : a < b;
  });
  int rank = 0;
  for (auto i = begin; i != end; ++i) {
    ranks_.push_back({*i, at(rank_, *i)});
    at(rank_, *i) = rank++;
  }
}

void ExactSearch::find_candidates() {
  ++nodes_;
  Choice& choice = choices_.back();
  const Part& part = choice.part;
  int64_t most_left = 0;
  for (int column = part.first_column; column < part.end_column; ++column) {
    most_left = std::max(most_left, at(left_, column));
  }
  choice.candidates_begin = choice.next_candidate = choice.candidates_end = candidates_.size();
  // An item that could lie below all the rest must not have to lie above some of it.
  int64_t lowest_top = std::numeric_limits<int64_t>::max();
  work_ += static_cast<int64_t>(part.end - part.begin) + part.end_column - part.first_column;
  for (size_t i = part.begin; i < part.end; ++i) {
    const int index = lists_[i];
    if (at(placed_, index)) continue;
    const int64_t offset = at(support_, index), top = offset + item(index).size;
    lowest_top = std::min(lowest_top, top);
    if (offset > choice.floor || (offset == choice.floor && at(rank_, index) >= choice.min_rank)) {
      if (offset < lowest_top && offset + most_left <= capacity_ && top <= capacity_ &&
          offset >= at(bound_, index)) {
        candidates_.push_back({offset, at(rank_, index), index});
      }
    } else if (!has_holder(part, index, top)) {
      candidates_.resize(choice.candidates_begin);
      return;
    }
  }
  const auto begin = candidates_.begin() + static_cast<ptrdiff_t>(choice.candidates_begin);
  candidates_.erase(
      std::remove_if(begin, candidates_.end(), [&](const Candidate& c) { return c.offset >= lowest_top; }),
      candidates_.end());
  std::sort(begin, candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.rank < b.rank;
  });
  choice.candidates_end = candidates_.size();
}

// An item that was skipped cannot stay at its lowest place: another one must come to lie there first.
bool ExactSearch::has_holder(const Part& part, int index, int64_t below) {
  const auto holds = [&](int other) {
    return !at(placed_, other) && at(support_, other) < below && other != index &&
           item(other).meets(item(index));
  };
  int& holder = at(holder_, index);
  if (holder >= 0 && holds(holder)) return true;
  for (size_t i = part.begin; i < part.end; ++i) {
    ++work_;
    if (!holds(lists_[i])) continue;
    holder = lists_[i];
    return true;
  }
  return false;
}

bool ExactSearch::place(Choice& choice, const Candidate& candidate) {
  const int index = candidate.item;
  const Item& placed = item(index);
  const Part& part = choice.part;
  at(placed_, index) = 1;
  at(offsets_, index) = candidate.offset;
  placed_order_.push_back(index);
  const int64_t top = candidate.offset + placed.size;
  bool is_cut = false;
  for (int column = placed.first; column < placed.end; ++column) {
    at(left_, column) -= placed.size;
    if (column + 1 < placed.end && --at(crossing_, column) == 0) is_cut = true;
  }
  choice.is_free = true;
  for (size_t i = part.begin; i < part.end; ++i) {
    const int other = lists_[i];
    if (at(placed_, other) || !item(other).meets(placed)) continue;
    choice.is_free = false;
    if (at(support_, other) >= top) continue;
    lifts_.push_back({other, at(support_, other)});
    at(support_, other) = item(other).aligned(top);
  }
  work_ += static_cast<int64_t>(part.end - part.begin) + placed.columns();
  if (!raise_floors(part, candidate.offset)) return false;
  if (settings_.is_thorough && !raise_bounds(part, candidate.offset)) return false;
  divide(choice, is_cut);
  return true;
}

// No item lies below the lowest support of its column, nor below the last placed item.
bool ExactSearch::raise_floors(const Part& part, int64_t floor) {
  work_ += part.end_column - part.first_column;
  for (int column = part.first_column; column < part.end_column; ++column) {
    if (at(left_, column) == 0) continue;
    const int lowest = at(lowest_, column);
    if (at(placed_, lowest) || at(support_, lowest) > at(floor_, column)) {
      int64_t support = std::numeric_limits<int64_t>::max();
      int new_lowest = lowest;
      const size_t begin = at(column_begin_, column), end = at(column_begin_, column + 1);
      size_t i = begin;
      for (; i < end; ++i) {
        const int other = column_items_[i];
        if (at(placed_, other) || at(support_, other) >= support) continue;
        support = at(support_, other);
        new_lowest = other;
        if (support <= at(floor_, column)) break;
      }
      work_ += static_cast<int64_t>(i - begin);
      floors_.push_back({column, lowest, at(floor_, column)});
      at(floor_, column) = support;
      at(lowest_, column) = new_lowest;
    }
    if (std::max(floor, at(floor_, column)) + at(left_, column) > capacity_) return fail(column);
  }
  return true;
}

bool ExactSearch::fail(int column) {
  ++at(conflicts_, column);
  return false;
}

// A column is a machine, its items are jobs that it runs in sequence: a job starts at the item's offset at
// the earliest, and the machine must be done by the capacity. These are the bound of preemptive schedules
// (Jackson) and the rule "not first" of edge finding (Carlier, Pinson 1989): if a set of items cannot all fit
// above an item, that item lies above one of them.
bool ExactSearch::raise_bounds(const Part& part, int64_t floor) {
  for (int column = part.first_column; column < part.end_column; ++column) {
    if (at(left_, column) == 0) continue;
    starts_.clear();
    const size_t end = at(column_begin_, column + 1);
    for (size_t i = at(column_begin_, column); i < end; ++i) {
      const int index = column_items_[i];
      if (at(placed_, index)) continue;
      starts_.emplace_back(std::max({at(support_, index), at(bound_, index), floor}), index);
    }
    work_ += 4 * static_cast<int64_t>(starts_.size());
    std::ranges::sort(starts_);
    ends_.clear();
    int64_t busy_until = 0;
    for (const auto& [start, index] : starts_) {
      busy_until = std::max(busy_until, start) + item(index).size;
      ends_.emplace_back(start + item(index).size, index);
    }
    if (busy_until > capacity_) return fail(column);
    std::ranges::sort(ends_, std::greater<>());
    for (const auto& [start, index] : starts_) {
      if (start + at(left_, column) <= capacity_) continue;
      int64_t top = start + item(index).size;
      for (const auto& [other_end, other] : ends_) {
        ++work_;
        if (other == index) continue;
        top += item(other).size;
        if (top <= capacity_) continue;
        if (other_end > start) {
          bounds_.push_back({index, at(bound_, index)});
          at(bound_, index) = other_end;
          if (other_end + item(index).size > capacity_) return fail(column);
        }
        break;
      }
    }
  }
  return true;
}

void ExactSearch::divide(Choice& choice, bool is_cut) {
  const Part part = choice.part;
  choice.parts_begin = choice.next_part = parts_.size();
  const size_t left = part.left - 1;
  // Copies the list without placed items, if it falls apart or half of it is placed.
  if (left > 0 && !is_cut && 2 * left > part.end - part.begin) {
    parts_.push_back({part.begin, part.end, part.first_column, part.end_column, left});
  } else if (left > 0) {
    for (int first = part.first_column, column = first; column < part.end_column; ++column) {
      if (column + 1 < part.end_column && at(crossing_, column) > 0) continue;
      if (at(left_, column) > 0) parts_.push_back({0, 0, first, column + 1, 0});
      first = column + 1;
    }
    const auto begin = parts_.begin() + static_cast<ptrdiff_t>(choice.parts_begin);
    const auto part_of = [&](int index) -> Part& {
      return *std::prev(std::upper_bound(begin, parts_.end(), item(index).first,
                                         [](int column, const Part& p) { return column < p.first_column; }));
    };
    for (size_t i = part.begin; i < part.end; ++i) {
      if (!at(placed_, lists_[i])) ++part_of(lists_[i]).left;
    }
    size_t end = lists_.size();
    lists_.resize(end + left);
    for (auto p = begin; p != parts_.end(); ++p) {
      p->begin = p->end = end;
      end += p->left;
    }
    for (size_t i = part.begin; i < part.end; ++i) {
      if (!at(placed_, lists_[i])) lists_[part_of(lists_[i]).end++] = lists_[i];
    }
    work_ += 2 * static_cast<int64_t>(part.end - part.begin);
    if (is_cut) {
      for (size_t p = choice.parts_begin; p < parts_.size(); ++p) sort(parts_[p]);
    }
  }
  choice.parts_end = parts_.size();
}

void ExactSearch::undo(const Choice& choice) {
  while (placed_order_.size() > choice.placed) {
    const int index = placed_order_.back();
    placed_order_.pop_back();
    at(placed_, index) = 0;
    for (int column = item(index).first; column < item(index).end; ++column) {
      at(left_, column) += item(index).size;
      if (column + 1 < item(index).end) ++at(crossing_, column);
    }
  }
  for (; lifts_.size() > choice.lifts; lifts_.pop_back()) {
    at(support_, lifts_.back().item) = lifts_.back().before;
  }
  for (; bounds_.size() > choice.bounds; bounds_.pop_back()) {
    at(bound_, bounds_.back().item) = bounds_.back().before;
  }
  for (; floors_.size() > choice.floors; floors_.pop_back()) {
    at(floor_, floors_.back().column) = floors_.back().floor;
    at(lowest_, floors_.back().column) = floors_.back().lowest;
  }
  for (; ranks_.size() > choice.ranks; ranks_.pop_back()) at(rank_, ranks_.back().item) = ranks_.back().rank;
  candidates_.resize(choice.candidates_end);
  parts_.resize(choice.parts_begin);
  lists_.resize(choice.list_end);
}

// False when nothing is left to place.
bool ExactSearch::open_next_part() {
  size_t parent = choices_.size() - 1;
  while (choices_[parent].next_part == choices_[parent].parts_end) {
    if (parent == 0) return false;
    parent = choices_[parent].parent;
  }
  // Choices of parts that are placed are never made again.
  choices_.resize(parent + 1);
  Choice& choice = choices_.back();
  const Part part = parts_[choice.next_part++];
  const Candidate& last = candidates_[choice.next_candidate - 1];
  // Parts of their own have new ranks.
  const bool is_new = part.begin != choice.part.begin;
  choices_.push_back({part, parent, last.offset, is_new ? 0 : last.rank, 0, 0, 0, parts_.size(),
                      parts_.size(), parts_.size(), placed_order_.size(), lifts_.size(), bounds_.size(),
                      floors_.size(), ranks_.size(), lists_.size()});
  find_candidates();
  return true;
}

}  // namespace headroom::packing
