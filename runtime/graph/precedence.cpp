#include "runtime/graph/precedence.h"

#include <algorithm>
#include <array>
#include <utility>

namespace headroom {
namespace {

// Links that a search for a path looks at, backward from its end and forward from its begin. Blocks of nets
// have fewer; between far ends the chains, which the main path of a net is one of, make most paths short.
constexpr int kMostBackward = 256, kMostForward = 4096;
constexpr int64_t kMostPerLink = 64;

// Hops from chain to chain, where a branch leaves the main path or joins it, and branches of that.
constexpr int kMostHops = 8;

}  // namespace

Precedence::Precedence(Predecessors predecessors, int64_t most_visits)
    : predecessors_(std::move(predecessors)),
      most_visits_(most_visits + kMostPerLink * static_cast<int64_t>(predecessors_.links())),
      successor_begins_(predecessors_.count() + 1),
      successors_(predecessors_.links()),
      chain_of_(predecessors_.count()),
      positions_(predecessors_.count()),
      seen_in_(predecessors_.count()) {
  const size_t count = predecessors_.count();
  for (size_t item = 0; item < count; ++item) {
    for (const int before : predecessors_.of(item)) ++successor_begins_[static_cast<size_t>(before) + 1];
  }
  for (size_t item = 0; item < count; ++item) successor_begins_[item + 1] += successor_begins_[item];
  std::vector<int> next(successor_begins_.begin(), successor_begins_.end() - 1);
  for (size_t item = 0; item < count; ++item) {
    for (const int before : predecessors_.of(item)) {
      successors_[static_cast<size_t>(next[static_cast<size_t>(before)]++)] = static_cast<int>(item);
    }
  }

  // The chain of an item continues with the successor on the longest path: past a gradient of a weight, which
  // only its update reads, to the gradient of the layer before.
  std::vector<int> height(count), heir(count, -1);
  for (size_t item = count; item-- > 0;) {
    for (const int before : predecessors_.of(item)) {
      const auto at = static_cast<size_t>(before);
      if (height[at] > height[item]) continue;
      height[at] = height[item] + 1;
      heir[at] = static_cast<int>(item);
    }
  }
  for (size_t item = 0; item < count; ++item) {
    int from = -1;
    for (const int before : predecessors_.of(item)) {
      const auto at = static_cast<size_t>(before);
      if (heir[at] != static_cast<int>(item)) continue;
      if (from < 0 || positions_[at] > positions_[static_cast<size_t>(from)]) from = before;
    }
    if (from < 0) {
      const std::span<const int> before = predecessors_.of(item);
      const auto last = std::ranges::max_element(before);
      chain_of_[item] = static_cast<int>(chains_.size());
      chains_.push_back({last == before.end() ? -1 : *last, heir[item]});
    } else {
      const auto at = static_cast<size_t>(from);
      chain_of_[item] = chain_of_[at];
      positions_[item] = positions_[at] + 1;
      chains_[static_cast<size_t>(chain_of_[at])].after = heir[item];
    }
  }
  reached_.resize(chains_.size());
  reached_in_.resize(chains_.size());
}

bool Precedence::is_seen(size_t item, size_t ancestor) const {
  for (int hops = 0; hops < kMostHops; ++hops) {
    if (chain_of_[item] == chain_of_[ancestor]) return positions_[item] >= positions_[ancestor];
    const int after = chains_[static_cast<size_t>(chain_of_[ancestor])].after;
    const int before = chains_[static_cast<size_t>(chain_of_[item])].before;
    if (after >= 0 && after <= static_cast<int>(item)) {
      ancestor = static_cast<size_t>(after);
    } else if (before >= static_cast<int>(ancestor)) {
      item = static_cast<size_t>(before);
    } else {
      return false;
    }
  }
  return false;
}

bool Precedence::has(size_t item, size_t ancestor) {
  if (ancestor >= item) return false;
  if (is_seen(item, ancestor)) return true;
  const int64_t left = most_visits_ - visits_;
  // Searches breadth first, following `links_of(item)` from `from`, until visit() stops it. Returns true if
  // it reached everything.
  const auto search = [&](size_t from, int64_t most, const auto& links_of, const auto& visit) {
    const int number = ++search_;
    pending_.assign(1, static_cast<int>(from));
    for (size_t next = 0; next < pending_.size(); ++next) {
      for (const int link : links_of(static_cast<size_t>(pending_[next]))) {
        if (--most < 0) return false;
        ++visits_;
        const auto at = static_cast<size_t>(link);
        if (at < ancestor || at > item || seen_in_[at] == number) continue;
        seen_in_[at] = number;
        if (visit(at)) return false;
        pending_.push_back(link);
      }
    }
    return true;
  };

  // Counts the items of each chain that come before the item.
  const int first_search = search_;
  const auto is_before = [&](size_t at) {
    const auto chain = static_cast<size_t>(chain_of_[at]);
    return reached_in_[chain] > first_search && reached_[chain] >= positions_[at];
  };
  const auto reach = [&](size_t at) {
    const auto chain = static_cast<size_t>(chain_of_[at]);
    if (!is_before(at)) reached_[chain] = positions_[at];
    reached_in_[chain] = search_;
    return is_before(ancestor);
  };
  const bool was_all = search(
      item, std::min<int64_t>(kMostBackward, left), [&](size_t at) { return predecessors_.of(at); }, reach);
  if (is_before(ancestor)) return true;
  if (was_all) return false;
  bool is_found = false;
  search(
      ancestor, std::min<int64_t>(kMostForward, left), [&](size_t at) { return successors_of(at); },
      [&](size_t at) { return is_found = at == item || is_before(at); });
  return is_found;
}

// The items that come before all of the later items examined so far. Together with an item it has all that
// the item follows from; so a later item leaves open what follows its first open ancestors, and these are
// found quickly: a result is kept in place of the predecessors, because an item that is no longer open never
// is again.
class Precedence::OpenItems {
 public:
  explicit OpenItems(Precedence& all)
      : all_(all),
        limit_(all.visits_ + all.most_visits_),
        last_(all.predecessors_.count(), -1),
        is_open_(last_.size(), true),
        followers_(last_.size()),
        found_in_(last_.size(), -1),
        first_open_(last_.size()),
        end_(last_.size()) {
    for (size_t item = 0; item < end_; ++item) {
      followers_[item] = static_cast<int>(all_.successors_of(item).size());
      if (followers_[item] == 0) ends_.push_back(static_cast<int>(item));
    }
  }

  // Closes all open items that are not ancestors of `later`. Go from the last to the first.
  void keep_ancestors(int later) {
    while (end_ > static_cast<size_t>(later)) {
      if (is_open_[--end_]) close(end_, -1);
    }
    const bool is_given_up = all_.visits_ >= limit_;
    if (!is_given_up) find_first_open(later);
    std::vector<int> kept;
    while (!ends_.empty()) {
      const int item = ends_.back();
      ends_.pop_back();
      const auto at = static_cast<size_t>(item);
      if (!is_open_[at]) continue;
      if (!is_given_up && found_in_[at] == later) {
        kept.push_back(item);
      } else {
        close(at, later);
      }
    }
    ends_ = std::move(kept);
  }

  std::vector<int> take_last() { return std::move(last_); }

 private:
  // A few items that stand for an item's predecessors: all open items that it follows from are among them or
  // come before one of them.
  struct Few {
    int count = -1;  // not known, or too many
    std::array<int, 7> items;
  };

  std::span<const int> before(size_t item) const {
    const Few& few = first_open_[item];
    if (few.count < 0) return all_.predecessors_.of(item);
    return std::span(few.items).first(static_cast<size_t>(few.count));
  }

  void close(size_t item, int last) {
    is_open_[item] = false;
    last_[item] = last;
    for (const int before : all_.predecessors_.of(item)) {
      const auto at = static_cast<size_t>(before);
      if (--followers_[at] == 0 && is_open_[at]) ends_.push_back(before);
    }
  }

  // Marks the open items that paths from `later` meet first, and shortens those paths.
  void find_first_open(int later) {
    passed_.assign(1, later);
    found_in_[static_cast<size_t>(later)] = later;
    for (size_t next = 0; next < passed_.size(); ++next) {
      for (const int item : before(static_cast<size_t>(passed_[next]))) {
        ++all_.visits_;
        const auto at = static_cast<size_t>(item);
        if (found_in_[at] == later) continue;
        found_in_[at] = later;
        if (!is_open_[at]) passed_.push_back(item);
      }
    }
    std::ranges::sort(passed_);
    for (const int item : passed_) shorten(static_cast<size_t>(item));
  }

  void shorten(size_t item) {
    Few few;
    few.count = 0;
    const auto add = [&](int found) {
      const auto item_at = [&](int i) { return static_cast<size_t>(few.items[static_cast<size_t>(i)]); };
      int kept = 0;
      for (int i = 0; i < few.count; ++i) {
        if (all_.is_seen(item_at(i), static_cast<size_t>(found))) return true;
        if (!all_.is_seen(static_cast<size_t>(found), item_at(i)))
          few.items[static_cast<size_t>(kept++)] = few.items[static_cast<size_t>(i)];
      }
      few.count = kept;
      if (few.count == static_cast<int>(few.items.size())) return false;
      few.items[static_cast<size_t>(few.count++)] = found;
      return true;
    };
    for (const int link : before(item)) {
      const auto at = static_cast<size_t>(link);
      if (is_open_[at] || first_open_[at].count < 0) {
        if (!add(link)) return;
        continue;
      }
      for (const int found : before(at)) {
        if (!add(found)) return;
      }
    }
    first_open_[item] = few;
  }

  Precedence& all_;
  int64_t limit_;  // limit on visits
  std::vector<int> last_;
  std::vector<bool> is_open_;
  std::vector<int> followers_;  // by item: open items that follow from it directly
  std::vector<int> found_in_;   // by item: the later item whose search met it
  std::vector<Few> first_open_;
  std::vector<int> ends_;  // open items from which no open one follows; closed ones may be among them
  std::vector<int> passed_;
  size_t end_;  // open items are before it
};

std::vector<int> Precedence::last_unordered(std::span<const int> later) {
  OpenItems open(*this);
  for (auto at = later.rbegin(); at != later.rend(); ++at) open.keep_ancestors(*at);
  return open.take_last();
}

}  // namespace headroom
