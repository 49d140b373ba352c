#include "runtime/plan/host_copies.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

namespace headroom {
namespace {

constexpr int kNowhere = -1;

class CopyPlacer {
 public:
  CopyPlacer(std::span<const double> node_us, std::span<HostCopy> stores, std::span<HostCopy> loads)
      : node_us_(node_us),
        stores_(stores),
        loads_(loads),
        begin_us_(node_us.size()),
        store_end_us_(stores.size()) {
    // The one whose block can go first is stored first.
    queue_.resize(stores.size());
    std::iota(queue_.begin(), queue_.end(), size_t{0});
    std::ranges::stable_sort(queue_, [&](size_t a, size_t b) { return stores[a].reader < stores[b].reader; });
  }

  double place() {
    place_stores();
    place_loads();
    return measure();
  }

 private:
  // Goes through the step without the loads that begin early.
  void place_stores() {
    std::vector<double> end_us(node_us_.size());
    double now = 0, link_free = 0;
    size_t known = 0, placed = 0, load = 0;  // stores of the queue whose end is known, that are placed
    const auto place_until = [&](size_t store, int position) {
      while (stores_[store].position == kNowhere) stores_[queue_[placed++]].position = position;
      now = std::max(now, store_end_us_[store]);
    };
    for (size_t node = 0; node < node_us_.size(); ++node) {
      const auto position = static_cast<int>(node);
      for (; known < queue_.size() && stores_[queue_[known]].reader < position; ++known) {
        const HostCopy& store = stores_[queue_[known]];
        link_free = std::max(link_free, end_us[store.source]) + store.us;
        store_end_us_[queue_[known]] = link_free;
        if (store.waits) place_until(queue_[known], position);
      }
      for (; load < loads_.size() && loads_[load].reader == position; ++load) {
        place_until(static_cast<size_t>(loads_[load].source), position);
        if (loads_[load].waits) now += loads_[load].us;
      }
      while (placed < known && store_end_us_[queue_[placed]] <= now)
        stores_[queue_[placed++]].position = position;
      begin_us_[node] = now;
      now += node_us_[node];
      end_us[node] = now;
    }
  }

  // From the last one on, each as late as the node that reads it and the next one allow.
  void place_loads() {
    double next_us = std::numeric_limits<double>::max();
    for (size_t i = loads_.size(); i-- > 0;) {
      HostCopy& load = loads_[i];
      next_us = std::min(next_us, begin_us_[load.reader]) - load.us;
      load.position = load.reader;
      if (load.waits) continue;
      const auto end = begin_us_.begin() + load.reader + 1;
      const auto running = std::upper_bound(begin_us_.begin(), end, next_us);
      load.position =
          std::max(static_cast<int>(running - begin_us_.begin()) - 1, stores_[load.source].position);
    }
  }

  double measure() {
    std::vector<size_t> in_order(loads_.size());
    std::iota(in_order.begin(), in_order.end(), size_t{0});
    std::ranges::stable_sort(in_order,
                             [&](size_t a, size_t b) { return loads_[a].position < loads_[b].position; });
    std::vector<double> load_end_us(loads_.size());
    std::vector<double> end_us(node_us_.size());
    double now = 0, to_host_free = 0, from_host_free = 0;
    size_t store = 0, queued = 0, read = 0;
    for (size_t node = 0; node < node_us_.size(); ++node) {
      const auto position = static_cast<int>(node);
      for (; store < queue_.size() && stores_[queue_[store]].position == position; ++store) {
        const HostCopy& copy = stores_[queue_[store]];
        to_host_free = std::max(to_host_free, end_us[copy.source]) + copy.us;
        store_end_us_[queue_[store]] = to_host_free;
        now = std::max(now, to_host_free);
      }
      for (; queued < in_order.size() && loads_[in_order[queued]].position == position; ++queued) {
        from_host_free = std::max(from_host_free, now) + loads_[in_order[queued]].us;
        load_end_us[in_order[queued]] = from_host_free;
      }
      for (; read < loads_.size() && loads_[read].reader == position; ++read) {
        now = std::max(now, load_end_us[read]);
      }
      now += node_us_[node];
      end_us[node] = now;
    }
    return now;
  }

  const std::span<const double> node_us_;
  const std::span<HostCopy> stores_, loads_;
  std::vector<size_t> queue_;     // stores, in their order
  std::vector<double> begin_us_;  // by node, without loads that begin early
  std::vector<double> store_end_us_;
};

}  // namespace

double place_host_copies(std::span<const double> node_us, std::span<HostCopy> stores,
                         std::span<HostCopy> loads) {
  return CopyPlacer(node_us, stores, loads).place();
}

}  // namespace headroom
