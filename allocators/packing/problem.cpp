#include "allocators/packing/problem.h"

#include <cstddef>
#include <tuple>

namespace headroom::packing {

void compress_columns(Problem& problem) {
  struct Change {
    int time;
    bool begins;  // ends of a time come before its beginnings
    size_t item;
    bool operator<(const Change& other) const {
      return std::tie(time, begins, item) < std::tie(other.time, other.begins, other.item);
    }
  };
  std::vector<Change> changes;
  changes.reserve(2 * problem.items.size());
  for (size_t i = 0; i < problem.items.size(); ++i) {
    changes.push_back({problem.items[i].first, true, i});
    changes.push_back({problem.items[i].end, false, i});
  }
  std::sort(changes.begin(), changes.end());
  int column = -1;
  bool is_new = true;  // an item ended since the last one began
  for (const Change& change : changes) {
    Item& item = problem.items[change.item];
    if (change.begins && is_new) ++column;
    is_new = !change.begins;
    (change.begins ? item.first : item.end) = change.begins ? column : column + 1;
  }
  problem.columns = column + 1;
}

}  // namespace headroom::packing
