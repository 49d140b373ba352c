#include "allocators/packing/problem.h"

#include "base/errors.h"

namespace headroom::packing {

void refuse_to_pack() {
  throw InvalidArgument("these blocks cannot be planned: more is live at once than offsets can count");
}

void compress_columns(Problem& problem) {
  // Events as numbers that sort fast: the time, whether it is a beginning, because ends at a time come before
  // beginnings, and the item.
  constexpr uint64_t kBegins = uint64_t{1} << 31;
  std::vector<uint64_t> changes;
  changes.reserve(2 * problem.items.size());
  const auto add = [&](int time, uint64_t rest) {
    changes.push_back(static_cast<uint64_t>(int64_t{time} - INT32_MIN) << 32 | rest);
  };
  for (size_t i = 0; i < problem.items.size(); ++i) {
    add(problem.items[i].first, kBegins | i);
    add(problem.items[i].end, i);
  }
  std::ranges::sort(changes);
  int column = -1;
  bool is_new = true;  // an item ended since the last one began
  for (const uint64_t change : changes) {
    Item& item = problem.items[change & (kBegins - 1)];
    const bool begins = (change & kBegins) != 0;
    if (begins && is_new) ++column;
    is_new = !begins;
    (begins ? item.first : item.end) = begins ? column : column + 1;
  }
  problem.columns = column + 1;
}

}  // namespace headroom::packing
