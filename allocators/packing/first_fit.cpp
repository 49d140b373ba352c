#include "allocators/packing/first_fit.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

namespace headroom::packing {
namespace {

constexpr size_t kChunk = 512;
constexpr int kShortestShelf = 16, kMostShelves = 128;

}  // namespace

void FirstFit::Shelf::insert(const Placed& placed) {
  if (chunks_.empty()) chunks_.emplace_back();
  auto chunk = std::upper_bound(chunks_.begin() + 1, chunks_.end(), placed.offset,
                                [](int64_t offset, const auto& c) { return offset < c.front().offset; });
  --chunk;
  chunk->insert(std::upper_bound(chunk->begin(), chunk->end(), placed.offset,
                                 [](int64_t offset, const Placed& p) { return offset < p.offset; }),
                placed);
  if (chunk->size() < kChunk) return;
  const auto half = chunk->begin() + kChunk / 2;
  std::vector<Placed> upper(half, chunk->end());
  chunk->erase(half, chunk->end());
  chunks_.insert(chunk + 1, std::move(upper));
}

class FirstFit::Shelf::Cursor {
 public:
  explicit Cursor(const Shelf* shelf) : shelf_(shelf) { settle(); }
  // Null at the end.
  const Placed* get() const { return placed_; }
  void next() {
    ++index_;
    settle();
  }

 private:
  void settle() {
    placed_ = nullptr;
    if (shelf_ == nullptr) return;
    while (chunk_ < shelf_->chunks_.size() && index_ == shelf_->chunks_[chunk_].size()) {
      ++chunk_;
      index_ = 0;
    }
    if (chunk_ < shelf_->chunks_.size()) placed_ = &shelf_->chunks_[chunk_][index_];
  }

  const Shelf* shelf_;
  size_t chunk_ = 0, index_ = 0;
  const Placed* placed_ = nullptr;
};

FirstFit::FirstFit(const Problem& problem) : problem_(problem) {
  int columns = std::max(kShortestShelf, problem.columns / kMostShelves + 1);
  while (true) {
    const int count = (problem.columns + columns - 1) / columns;
    levels_.push_back({columns, std::vector<Shelf>(static_cast<size_t>(std::max(1, count)))});
    if (count <= 1) break;
    columns *= 4;
  }
  placement_.offsets.resize(problem.items.size());
}

void FirstFit::clear() {
  for (Level& level : levels_) {
    for (Shelf& shelf : level.shelves) shelf.clear();
  }
  placement_.height = 0;
}

void FirstFit::put(int index, int64_t offset) {
  const Item& item = problem_.items[static_cast<size_t>(index)];
  const Placed placed{offset, offset + item.size, item.first, item.end};
  placement_.offsets[static_cast<size_t>(index)] = offset;
  placement_.height = std::max(placement_.height, placed.top);
  for (Level& level : levels_) {
    const int last = (item.end - 1) / level.columns;
    for (int shelf = item.first / level.columns; shelf <= last; ++shelf) {
      level.shelves[static_cast<size_t>(shelf)].insert(placed);
      work_ += static_cast<int64_t>(kChunk / 16);
    }
  }
}

void FirstFit::place(int index, Fit fit) {
  const Item& item = problem_.items[static_cast<size_t>(index)];
  auto level = levels_.begin();
  while ((item.end - 1) / level->columns - item.first / level->columns > 1) ++level;
  const Shelf* const first = &level->shelves[static_cast<size_t>(item.first / level->columns)];
  const Shelf* const last = &level->shelves[static_cast<size_t>((item.end - 1) / level->columns)];
  // Items on both shelves come twice, which does no harm.
  Shelf::Cursor a(first), b(last == first ? nullptr : last);
  int64_t offset = -1, tightest = std::numeric_limits<int64_t>::max(), floor = 0;
  while (a.get() != nullptr || b.get() != nullptr) {
    ++work_;
    const bool from_a = b.get() == nullptr || (a.get() != nullptr && a.get()->offset <= b.get()->offset);
    Shelf::Cursor& cursor = from_a ? a : b;
    const Placed& other = *cursor.get();
    if (other.first < item.end && item.first < other.end) {
      const int64_t start = item.aligned(floor), gap = other.offset - start;
      if (gap >= item.size && gap < tightest) {
        offset = start;
        tightest = gap;
        if (fit == Fit::kFirst) break;
      }
      floor = std::max(floor, other.top);
    }
    cursor.next();
  }
  put(index, offset >= 0 ? offset : item.aligned(floor));
}

bool FirstFit::place_all(std::span<const int> order, Fit fit, int64_t max_work) {
  clear();
  const int64_t end = work_ + max_work;
  for (const int index : order) {
    place(index, fit);
    if (work_ > end) return false;
  }
  return true;
}

}  // namespace headroom::packing
