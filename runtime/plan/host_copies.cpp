#include "runtime/plan/host_copies.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

namespace headroom {
namespace {

constexpr int kNowhere = -1;

class Placer {
 public:
  Placer(std::span<const double> node_us, std::span<const HostStore> stores, std::span<const HostLoad> loads)
      : node_us_(node_us),
        stores_(stores),
        loads_(loads),
        copies_{std::vector<int>(stores.size(), kNowhere), std::vector<int>(loads.size(), kNowhere), 0},
        begin_us_(node_us.size()),
        store_end_us_(stores.size()) {
    // The one whose block can go first is stored first.
    queue_.resize(stores.size());
    std::iota(queue_.begin(), queue_.end(), size_t{0});
    std::stable_sort(queue_.begin(), queue_.end(),
                     [&](size_t a, size_t b) { return stores[a].last_reader < stores[b].last_reader; });
  }

  HostCopies place() {
    place_stores();
    place_loads();
    measure();
    return std::move(copies_);
  }

 private:
  // Goes through the step without the loads that begin early.
  void place_stores() {
    std::vector<double> end_us(node_us_.size());
    double now = 0, link_free = 0;
    size_t known = 0, placed = 0, load = 0;  // stores of the queue whose end is known, that are placed
    const auto place_until = [&](size_t store, int position) {
      while (copies_.store_at[store] == kNowhere) copies_.store_at[queue_[placed++]] = position;
      now = std::max(now, store_end_us_[store]);
    };
    for (size_t node = 0; node < node_us_.size(); ++node) {
      const auto position = static_cast<int>(node);
      for (; known < queue_.size() && stores_[queue_[known]].last_reader < position; ++known) {
        const HostStore& store = stores_[queue_[known]];
        link_free = std::max(link_free, end_us[store.maker]) + store.us;
        store_end_us_[queue_[known]] = link_free;
        if (store.waits) place_until(queue_[known], position);
      }
      for (; load < loads_.size() && loads_[load].reader == position; ++load) {
        place_until(static_cast<size_t>(loads_[load].store), position);
        if (loads_[load].waits) now += loads_[load].us;
      }
      while (placed < known && store_end_us_[queue_[placed]] <= now)
        copies_.store_at[queue_[placed++]] = position;
      begin_us_[node] = now;
      now += node_us_[node];
      end_us[node] = now;
    }
  }

  // From the last one on, each as late as the node that reads it and the next one allow.
  void place_loads() {
    double next_us = std::numeric_limits<double>::max();
    for (size_t i = loads_.size(); i-- > 0;) {
      const HostLoad& load = loads_[i];
      next_us = std::min(next_us, begin_us_[load.reader]) - load.us;
      int& at = copies_.load_at[i];
      at = load.reader;
      if (load.waits) continue;
      const auto end = begin_us_.begin() + load.reader + 1;
      const auto running = std::upper_bound(begin_us_.begin(), end, next_us);
      at = std::max(static_cast<int>(running - begin_us_.begin()) - 1, copies_.store_at[load.store]);
    }
  }

  void measure() {
    std::vector<size_t> in_order(loads_.size());
    std::iota(in_order.begin(), in_order.end(), size_t{0});
    std::stable_sort(in_order.begin(), in_order.end(),
                     [&](size_t a, size_t b) { return copies_.load_at[a] < copies_.load_at[b]; });
    std::vector<double> load_end_us(loads_.size());
    std::vector<double> end_us(node_us_.size());
    double now = 0, to_host_free = 0, from_host_free = 0;
    size_t store = 0, queued = 0, read = 0;
    for (size_t node = 0; node < node_us_.size(); ++node) {
      const auto position = static_cast<int>(node);
      for (; store < queue_.size() && copies_.store_at[queue_[store]] == position; ++store) {
        const HostStore& copy = stores_[queue_[store]];
        to_host_free = std::max(to_host_free, end_us[copy.maker]) + copy.us;
        store_end_us_[queue_[store]] = to_host_free;
        now = std::max(now, to_host_free);
      }
      for (; queued < in_order.size() && copies_.load_at[in_order[queued]] == position; ++queued) {
        from_host_free = std::max(from_host_free, now) + loads_[in_order[queued]].us;
        load_end_us[in_order[queued]] = from_host_free;
      }
      for (; read < loads_.size() && loads_[read].reader == position; ++read) {
        now = std::max(now, load_end_us[read]);
      }
      now += node_us_[node];
      end_us[node] = now;
    }
    copies_.us = now;
  }

  const std::span<const double> node_us_;
  const std::span<const HostStore> stores_;
  const std::span<const HostLoad> loads_;
  HostCopies copies_;
  std::vector<size_t> queue_;     // stores, in their order
  std::vector<double> begin_us_;  // by node, without loads that begin early
  std::vector<double> store_end_us_;
};

}  // namespace

HostCopies place_host_copies(std::span<const double> node_us, std::span<const HostStore> stores,
                             std::span<const HostLoad> loads) {
  return Placer(node_us, stores, loads).place();
}

}  // namespace headroom
