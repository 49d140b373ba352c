// The report of a StepModel on its last evaluation: values waiting at the peak, recomputed values, and the
// schedule.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "runtime/plan/step_model.h"

namespace headroom {

double StepModel::repeat_us(const Choices& choices, int root, int time, std::vector<int>& seen) const {
  constexpr size_t kMostNodes = 24;
  if (const int again = again_of_[root]; again >= 0) {
    const std::span<const int> uses = roots_[again].uses;
    if (time >= uses.front() && time <= uses.back()) return again_us_[again];
  }
  const int restorer = nodes_[time].is_backward ? restorer_of_[root] : -1;
  const NodeInfo& maker = node_at(restorer >= 0 ? restorer : roots_[root].maker);
  double us = maker.us;
  seen.push_back(root);
  for (const int input : maker.inputs) {
    const int from = root_of_[input];
    const Root& source = roots_[from];
    if (source.maker < 0 || seen.size() >= kMostNodes) continue;
    if (std::ranges::find(seen, from) != seen.end()) continue;
    const int gap = gap_at(from, time);
    const Keep keep = gap < 0 ? Keep::kAlways : choices[source.first_gap + gap];
    if (keep == Keep::kAlways) continue;
    us += is_on_host(keep) ? host_.copy_us(source.bytes) : repeat_us(choices, from, time, seen);
  }
  return us;
}

double StepModel::repeat_us(const Choices& choices, int gap) const {
  const int id = root_of_gap_[gap];
  const Root& root = roots_[id];
  const auto next = static_cast<size_t>(gap - root.first_gap) + 1;
  const int time = next < root.uses.size() ? root.uses[next] : static_cast<int>(nodes_.size()) - 1;
  std::vector<int> seen;
  return repeat_us(choices, id, time, seen);
}

std::vector<StepModel::Gap> StepModel::waiting_at_peak(const Choices& choices) const {
  const int time = entries_[peak_entry_].time;
  std::vector<bool> is_read(roots_.size());
  std::vector<int> holds(buffers_.size(), -1);  // by buffer: the root that it holds at the peak
  for (size_t e = 0; e < entries_.size() && entries_[e].time <= time; ++e) {
    const Entry& entry = entries_[e];
    const NodeInfo& node = info_of(entry);
    for (size_t i = 0; i < node.inputs.size() && entry.kind == ScheduledKind::kNode; ++i) {
      // One that only earlier entries of the same time read may go before the peak.
      if (static_cast<int>(e) >= peak_entry_) is_read[root_of_[node.inputs[i]]] = true;
    }
    for (size_t o = 0; o < node.outputs.size() && static_cast<int>(e) <= peak_entry_; ++o) {
      const int id = buffer_of_[static_cast<size_t>(entry.first_output) + o];
      if (id >= 0) holds[id] = value_of(entry, o);
    }
  }
  std::vector<Gap> waiting;
  for (size_t id = 0; id < buffers_.size(); ++id) {
    const int root = holds[id];
    if (root < 0 || buffers_[id].last < peak_entry_ || is_read[root]) continue;
    const int index = gap_at(root, time);
    if (index < 0) continue;
    const int gap = roots_[root].first_gap + index;
    const Keep keep = choices[gap];
    if (keep == Keep::kNever || keep == Keep::kHostAtOnce) continue;
    if (!can_drop(gap) && !can_go_to_host(gap)) continue;
    waiting.push_back({gap, buffers_[id].bytes, repeat_us(choices, gap), gap_us(gap)});
  }
  return waiting;
}

// In the step without levers.
double StepModel::gap_us(int gap) const {
  const Root& root = root_of(gap);
  const auto use = static_cast<size_t>(gap - root.first_gap);
  const int end = use + 1 < root.uses.size() ? root.uses[use + 1] : static_cast<int>(nodes_.size()) - 1;
  return begin_us_[end] - begin_us_[root.uses[use]];
}

int64_t StepModel::bytes_above(int64_t bytes) const {
  int64_t sum = 0;
  for (const int64_t most : most_at_) sum += std::max<int64_t>(0, most - bytes);
  return sum;
}

bool StepModel::has_room_for(int gap, int64_t budget_bytes, std::span<const int64_t> most_at) const {
  const Root& root = roots_[root_of_gap_[gap]];
  const auto use = static_cast<size_t>(gap - root.first_gap);
  if (use + 1 == root.uses.size()) return true;
  const auto begin = most_at.begin() + root.uses[use] + 1, end = most_at.begin() + root.uses[use + 1];
  return std::all_of(begin, end, [&](int64_t most) { return most + root.bytes <= budget_bytes; });
}

std::vector<StepModel::Gap> StepModel::repeats() const {
  std::vector<Gap> repeats;
  const auto add = [&](int gap, double us) { repeats.push_back({gap, root_of(gap).bytes, us, gap_us(gap)}); };
  for (size_t id = 0; id < again_of_.size(); ++id) {
    const int again = again_of_[id];
    if (again < 0) continue;
    const int gap = gap_at(static_cast<int>(id), roots_[again].uses.front());
    if (is_given_again_[again] && gap >= 0) {
      add(roots_[id].first_gap + gap, again_us_[again]);
    }
  }
  for (const int load : loads_) add(instances_[load].gap, copy_us(instances_[load].gap));
  for (const Entry& entry : entries_) {
    if (!entry.is_repeat || entry.kind != ScheduledKind::kNode) continue;
    const NodeInfo& node = node_at(entry.node);
    if (node.is_reshape) continue;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const int value = value_of(entry, o), index = gap_at(value, entry.time);
      const bool is_read = reads_of_[static_cast<size_t>(entry.first_output) + o] > 0;
      if (is_read && index >= 0) {
        add(roots_[value].first_gap + index, node.us);
      }
    }
  }
  return repeats;
}

NodeSchedule StepModel::schedule() const {
  NodeSchedule schedule;
  std::vector<int> value_of_instance(instances_.size()), on_host(roots_.size(), -1);
  const auto new_value = [&](int origin) {
    schedule.copy_of.push_back(origin);
    return static_cast<int>(graph_.values().size() + schedule.copy_of.size()) - 1;
  };
  for (const Entry& entry : entries_) {
    const NodeInfo& node = info_of(entry);
    ScheduledNode scheduled{.node = node.id, .kind = entry.kind};
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int instance = entry_inputs_[static_cast<size_t>(entry.first_input) + i];
      scheduled.inputs.push_back(instance < 0 ? node.inputs[i] : value_of_instance[instance]);
    }
    if (entry.kind == ScheduledKind::kStore) {
      const int origin = instances_[entry_inputs_[entry.first_input]].value;
      on_host[origin] = new_value(origin);
      scheduled.outputs.push_back(on_host[origin]);
      schedule.nodes.push_back(std::move(scheduled));
      continue;
    }
    if (entry.kind == ScheduledKind::kNode && node.id < 0) break;  // the end
    if (entry.kind == ScheduledKind::kLoad) scheduled.inputs.push_back(on_host[value_of(entry, 0)]);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      int value = value_of(entry, o);
      if (entry.is_repeat) value = new_value(value);
      value_of_instance[static_cast<size_t>(entry.first_output) + o] = value;
      scheduled.outputs.push_back(value);
    }
    schedule.nodes.push_back(std::move(scheduled));
  }
  return schedule;
}

}  // namespace headroom
