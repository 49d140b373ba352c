// The copies to host memory and back of a StepModel: which there are, and where in the step they stand.
#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/plan/step_model.h"

namespace headroom {

namespace {

// Nodes run slower beside copies, which take some of the memory's traffic and of the command processor.
// Measured on an H100, for a step of ResNet-50 with 26 ms of copies: kernels took 0.9 ms longer, and gaps
// between them 0.5 ms.
constexpr double kSlowdownBesideCopies = 0.05;

}  // namespace

double StepModel::us_of(const Entry& entry) const {
  const NodeInfo& node = node_at(entry.node);
  double us = node.us;
  for (size_t o = 0; o < node.outputs.size() && !node.is_reshape; ++o) {
    const bool is_written = reads_of_[static_cast<size_t>(entry.first_output) + o] > 0;
    if (is_written) us += again_us_[node.outputs[o]];
  }
  return us;
}

// A value goes to the host once, as its node made it first, however often it comes back.
void StepModel::insert_copies(const Choices& choices) {
  constexpr int kNone = -1;
  std::vector<int> stored;  // by store: the instance
  std::vector<int> store_of(roots_.size(), kNone), maker_of(instances_.size(), kNone);
  std::vector<int> first_reader(instances_.size(), kNone), last_reader(instances_.size(), kNone);
  std::vector<double> node_us;
  for (size_t e = 0; e < entries_.size(); ++e) {
    const Entry& entry = entries_[e];
    const NodeInfo& node = info_of(entry);
    node_us.push_back(us_of(entry));
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      maker_of[static_cast<size_t>(entry.first_output) + o] = static_cast<int>(e);
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int input = entry_inputs_[static_cast<size_t>(entry.first_input) + i];
      const int storage = input < 0 ? kNone : instances_[input].storage;
      if (storage < 0) continue;
      int& first = first_reader[storage];
      if (first == kNone) first = static_cast<int>(e);
      last_reader[storage] = static_cast<int>(e);
    }
  }
  std::ranges::stable_sort(loads_, [&](int a, int b) { return first_reader[a] < first_reader[b]; });
  std::vector<HostCopy> stores, loads;
  for (const int load : loads_) {
    const int gap = instances_[load].gap, root = root_of_gap_[gap];
    const bool waits = choices[gap] == Keep::kHostAtOnce;
    const double us = copy_us(gap);
    int& store = store_of[root];
    if (store == kNone) {
      store = static_cast<int>(stores.size());
      const int instance = first_instance_of_[root];
      const int maker = maker_of[instance];
      stores.push_back({maker, std::max(maker, last_reader[instance]), waits, us});
      stored.push_back(instance);
    }
    loads.push_back({store, first_reader[load], waits, us});
  }
  us_with_copies_ = place_host_copies(node_us, stores, loads);
  for (const HostCopy& store : stores) us_with_copies_ += kSlowdownBesideCopies * store.us;
  for (const HostCopy& load : loads) us_with_copies_ += kSlowdownBesideCopies * load.us;

  // In the order in which each direction of the link carries them, stores before loads.
  std::vector<size_t> store_order(stores.size()), load_order(loads.size());
  std::iota(store_order.begin(), store_order.end(), size_t{0});
  std::iota(load_order.begin(), load_order.end(), size_t{0});
  std::ranges::stable_sort(store_order, [&](size_t a, size_t b) {
    return std::pair(stores[a].position, stores[a].reader) < std::pair(stores[b].position, stores[b].reader);
  });
  std::ranges::stable_sort(load_order,
                           [&](size_t a, size_t b) { return loads[a].position < loads[b].position; });
  std::vector<int> loads_left(stores.size());
  for (const HostCopy& load : loads) ++loads_left[load.source];
  std::vector<Entry> entries;
  entries.reserve(entries_.size() + stores.size() + loads.size());
  size_t store = 0, load = 0;
  int64_t on_host = 0;
  host_bytes_ = 0;
  for (size_t e = 0; e < entries_.size(); ++e) {
    const int time = entries_[e].time;
    for (; store < stores.size() && stores[store_order[store]].position == static_cast<int>(e); ++store) {
      const int copied = stored[store_order[store]];
      entries.push_back({.time = time,
                         .first_input = static_cast<int>(entry_inputs_.size()),
                         .kind = ScheduledKind::kStore});
      entry_inputs_.push_back(copied);
      ++reads_of_[copied];
      on_host += bytes_of_root(instances_[copied].value);
      host_bytes_ = std::max(host_bytes_, on_host);
    }
    for (; load < loads.size() && loads[load_order[load]].position == static_cast<int>(e); ++load) {
      entries.push_back({.time = time,
                         .is_repeat = true,
                         .first_input = static_cast<int>(entry_inputs_.size()),
                         .first_output = loads_[load_order[load]],
                         .kind = ScheduledKind::kLoad});
      const int from = loads[load_order[load]].source;
      if (--loads_left[from] == 0) on_host -= bytes_of_root(instances_[stored[from]].value);
    }
    entries.push_back(entries_[e]);
  }
  entries_ = std::move(entries);
}

}  // namespace headroom
