#include "runtime/plan/step_model.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "allocators/allocator.h"
#include "base/bytes.h"
#include "runtime/plan/given_again.h"

namespace headroom {
namespace {

int64_t block_bytes(const TensorSpec& spec) {
  return round_up(spec.bytes(), Allocator::kAlignment);
}

// Nodes that talk to other replicas or devices run once, in the order that all of them agree on.
bool can_run_again(const Op& op) {
  return !is_update(op) && !std::holds_alternative<AllReduce>(op) &&
         !std::holds_alternative<CopyToDevice>(op);
}

// Marks a copy: it reads or makes one value, which no list names.
constexpr int kNoValue = -1, kNotOptional = 0;

}  // namespace

std::span<const int> StepModel::keep(const std::vector<int>& list) {
  auto* const kept = static_cast<int*>(lists_->allocate(list.size() * sizeof(int), alignof(int)));
  std::copy(list.begin(), list.end(), kept);
  return {kept, list.size()};
}

StepModel::NodeInfo StepModel::info_of(const Node& node, int id, const NodeCosts& costs) {
  NodeInfo info{.id = id, .us = costs.us[id], .inputs = keep(node.inputs), .outputs = keep(node.outputs)};
  info.workspace = round_up(costs.workspace_bytes[id], Allocator::kAlignment);
  info.is_reshape = std::holds_alternative<Reshape>(node.op);
  info.can_repeat = can_run_again(node.op);
  info.is_backward = !node.outputs.empty() && graph_.value(node.outputs[0]).backward;
  std::vector<TensorSpec> inputs;
  for (const int input : node.inputs) inputs.push_back(graph_.value(input).spec);
  std::vector<int> in_place, is_optional;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const TensorSpec& output = graph_.value(node.outputs[i]).spec;
    const int position = in_place_input(node.op, inputs, output, i);
    const bool fits = position >= 0 && inputs[position].bytes() == output.bytes();
    in_place.push_back(fits ? position : -1);
    is_optional.push_back(is_optional_output(node.op, i) ? 1 : 0);
  }
  info.in_place = keep(in_place);
  info.is_optional = keep(is_optional);
  return info;
}

StepModel::StepModel(const Graph& graph, const Targets& targets, const NeededNodes& needed,
                     const NodeCosts& costs, const HostLink& host)
    : graph_(graph),
      host_(host),
      store_{.inputs = {&kNoValue, 1}},
      load_{.outputs = {&kNoValue, 1}, .in_place = {&kNoValue, 1}, .is_optional = {&kNotOptional, 1}},
      first_instance_of_(graph.values().size(), -1) {
  const size_t values = graph.values().size();
  roots_.resize(values);
  node_of_.assign(values, -1);
  now_.assign(values, -1);
  std::vector<TensorSpec> specs;
  for (size_t id = 0; id < values; ++id) {
    root_of_.push_back(static_cast<int>(id));
    const TensorSpec& spec = graph.value(static_cast<int>(id)).spec;
    const auto found = std::ranges::find(specs, spec);
    spec_of_.push_back(static_cast<int>(found - specs.begin()));
    if (found == specs.end()) specs.push_back(spec);
  }
  std::vector<std::vector<int>> uses(values), used_at;  // by root, by position
  const auto add = [&](const NodeInfo& node) {
    const auto position = static_cast<int>(nodes_.size());
    if (node.is_reshape) {
      root_of_[node.outputs[0]] = root_of_[node.inputs[0]];
    }
    for (const int output : node.outputs) {
      node_of_[output] = position;
      if (node.is_reshape) continue;
      Root& root = roots_[output];
      root.bytes = block_bytes(graph.value(output).spec);
      root.maker = position;
    }
    std::vector<int> used;
    for (const int input : node.inputs) {
      const int root = root_of_[input];
      if (node.is_reshape || std::ranges::find(used, root) != used.end()) continue;
      used.push_back(root);
      uses[root].push_back(position);
    }
    used_at.push_back(std::move(used));
    nodes_.push_back(node);
  };
  std::vector<bool> is_copied_in(values);
  const auto copy_in = [&](int id) {
    const ValueInfo& value = graph.value(id);
    if (value.kind != ValueKind::kInput || is_copied_in[id]) return;
    is_copied_in[id] = true;
    if (!targets.doubled_inputs) input_bytes_ += block_bytes(value.spec);
  };
  for (const int id : needed.pure) {
    const Node& node = graph.node(id);
    std::for_each(node.inputs.begin(), node.inputs.end(), copy_in);
    add(info_of(node, id, costs));
  }
  // The end: what is copied out, then what updates read. Neither can be left out or moved.
  NodeInfo end{.can_repeat = false};
  std::vector<int> read_at_end;
  for (const Value& fetch : targets.fetches) read_at_end.push_back(fetch.id);
  for (const int id : needed.updates) {
    const Node& node = graph.node(id);
    const auto is_read = [&](int input) {
      const auto at = static_cast<size_t>(root_of_[input]);
      return graph.value(input).kind == ValueKind::kInput || roots_[at].maker >= 0;
    };
    std::copy_if(node.inputs.begin(), node.inputs.end(), std::back_inserter(read_at_end), is_read);
    end.workspace = std::max(end.workspace, round_up(costs.workspace_bytes[id], Allocator::kAlignment));
  }
  std::for_each(read_at_end.begin(), read_at_end.end(), copy_in);
  end.inputs = keep(read_at_end);
  add(end);
  find_results_given_again(uses);
  find_restorers(costs);
  std::vector<int> waiting;  // roots that only the backward pass reads, though the forward pass makes them
  for (size_t id = 0; id < values; ++id) {
    const int maker = roots_[id].maker;
    const auto is_backward = [&](int position) { return nodes_[position].is_backward; };
    if (maker >= 0 && !is_backward(maker) && !uses[id].empty() && is_backward(uses[id].front())) {
      waiting.push_back(static_cast<int>(id));
      uses[id].insert(uses[id].begin(), maker);
    }
    roots_[id].uses = keep(uses[id]);
  }

  for (size_t id = 0; id < values; ++id) {
    Root& root = roots_[id];
    if (root.maker < 0 || root_of_[id] != static_cast<int>(id)) continue;
    root.first_gap = static_cast<int>(root_of_gap_.size());
    const bool can_repeat = nodes_[root.maker].can_repeat;
    for (size_t use = 0; use < root.uses.size(); ++use) {
      root_of_gap_.push_back(static_cast<int>(id));
      const bool is_last = use + 1 == root.uses.size();
      keep_all_.push_back(is_last && can_repeat ? Keep::kOnce : Keep::kAlways);
    }
  }
  max_entries_ = 1000 + 12 * nodes_.size();
  double begin_us = 0;
  for (const NodeInfo& node : nodes_) begin_us_.push_back(std::exchange(begin_us, begin_us + node.us));

  for (size_t i = 0; i < nodes_.size(); ++i) {
    const NodeInfo& node = nodes_[i];
    if (node.is_reshape) continue;
    int64_t bytes = input_bytes_ + node.workspace;
    for (const int root : used_at[i]) bytes += bytes_of_root(root);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (node.in_place[o] < 0 && node.is_optional[o] == 0) bytes += bytes_of_root(node.outputs[o]);
    }
    least_bytes_ = std::max(least_bytes_, bytes);
  }
  for (const int id : waiting) used_at[roots_[id].maker].push_back(id);
  // The readers of a value may read it where it is given again; both count its uses.
  for (const int again : again_of_) {
    if (again < 0) continue;
    for (const int use : roots_[again].uses) {
      used_at[use].push_back(again);
    }
  }
  for (const std::vector<int>& roots : used_at) used_at_.push_back(keep(roots));
}

// A result that a node gives again stays for the readers that follow that node without a gap.
void StepModel::find_results_given_again(std::vector<std::vector<int>>& uses) {
  again_of_.assign(roots_.size(), -1);
  again_us_.assign(roots_.size(), 0);
  const std::vector<int> given = find_given_again(graph_);
  for (size_t id = 0; id < given.size(); ++id) {
    const int again = given[id];
    if (again < 0 || roots_[id].maker < 0 || node_of_[again] < 0) continue;
    const Root& root = roots_[again];
    const auto is_reader = [&](int position) {
      return position + 1 < static_cast<int>(nodes_.size()) && std::ranges::binary_search(uses[id], position);
    };
    std::vector<int>& uses_again = uses[again];
    for (int position = root.maker + 1; is_reader(position); ++position) uses_again.push_back(position);
    if (uses_again.empty()) continue;
    again_of_[id] = again;
    // To compute it, x is read and the result is written; here it is written alone.
    again_us_[again] = nodes_[roots_[id].maker].us / 2;
  }
}

void StepModel::find_restorers(const NodeCosts& costs) {
  restorer_of_ = headroom::find_restorers(graph_);
  for (int& restorer : restorer_of_) {
    if (restorer < 0) continue;
    const Node& node = graph_.node(restorer);
    const int id = std::exchange(restorer, node_of_[node.outputs[0]]);
    const bool can_run = std::ranges::all_of(node.inputs, [&](int input) {
      return node_of_[input] >= 0 || graph_.value(input).kind != ValueKind::kResult;
    });
    if (restorer >= 0 || !can_run) continue;
    restorer = static_cast<int>(nodes_.size() + restorers_.size());
    restorers_.push_back(info_of(node, id, costs));
  }
}

int StepModel::gap_at(int root, int time) const {
  const std::span<const int> uses = roots_[root].uses;
  const auto next = std::lower_bound(uses.begin(), uses.end(), time);
  return next == uses.begin() ? -1 : static_cast<int>(next - uses.begin()) - 1;
}

int StepModel::need(int value, int time, const Choices& choices) {
  const int root = root_of_[value];
  const auto at = static_cast<size_t>(value);
  if (roots_[root].maker < 0) {
    // A reshape of what is always there runs when it is first read.
    if (node_of_[at] >= 0 && has_run_[node_of_[at]] == 0) emit(node_of_[at], time, choices);
    return now_[at];
  }
  if (now_[root] < 0) {
    const int again = again_of_[root], passed = passed_[root];
    const int gap = roots_[root].first_gap + passed - 1;
    if (passed > 0 && is_on_host(choices[gap])) {
      load(root, gap);
    } else if (value == root && again >= 0 && now_[again] >= 0) {
      return now_[again];
    } else if (can_restore(root, time)) {
      emit_restorer(root, time, choices);
    } else {
      emit(roots_[root].maker, time, choices);
    }
  }
  if (value == root || is_too_long_) return now_[at];
  const int storage = now_[root];
  if (now_[at] < 0 || instances_[now_[at]].storage != storage) {
    emit(node_of_[at], time, choices);
  }
  return now_[at];
}

// insert_copies() puts the copy into the step, once it is known which node reads it first.
void StepModel::load(int root, int gap) {
  const auto id = static_cast<int>(instances_.size());
  instances_.push_back({root, id, gap});
  now_[root] = id;
  loads_.push_back(id);
}

// Puts the instances that a node reads on the stack, above those of the nodes that it runs for. False where
// the step gets too long.
bool StepModel::need_inputs(const NodeInfo& node, int time, const Choices& choices) {
  if (entries_.size() >= max_entries_) is_too_long_ = true;
  for (size_t i = 0; i < node.inputs.size() && !is_too_long_; ++i) {
    const int value = node.inputs[i], now = now_[value];
    // Usually it is there; that is told by lists that stay in the processor's nearest cache.
    const int instance = now >= 0 && root_of_[value] == value ? now : need(value, time, choices);
    stack_.push_back(instance);
  }
  return !is_too_long_;
}

// Takes the instances from the stack down to `base`.
void StepModel::add_entry(int position, int time, bool is_repeat, size_t base) {
  // Written in place: a copy of what was just written by parts waits for it, a tenth of a search.
  Entry& entry = entries_.emplace_back();
  entry.node = position;
  entry.time = time;
  entry.is_repeat = is_repeat;
  entry.first_input = static_cast<int>(entry_inputs_.size());
  entry.first_output = static_cast<int>(instances_.size());
  for (size_t i = base; i < stack_.size(); ++i) entry_inputs_.push_back(stack_[i]);
  stack_.erase(stack_.begin() + static_cast<std::ptrdiff_t>(base), stack_.end());
}

// Returns true if the backward pass, which reads a dropped value, gets it from its restorer: not if its own
// maker has all its operands, or makes an operand of the restorer.
bool StepModel::can_restore(int root, int time) const {
  const int restorer = restorer_of_[root];
  if (restorer < 0 || !nodes_[time].is_backward) return false;
  const int maker = roots_[root].maker;
  const auto root_of_first = [&](int node) { return root_of_[node_at(node).inputs[0]]; };
  const int source = root_of_first(restorer);
  if (now_[root_of_first(maker)] >= 0) return false;
  return now_[source] >= 0 || roots_[source].maker != maker;
}

void StepModel::emit_restorer(int root, int time, const Choices& choices) {
  const int restorer = restorer_of_[root];
  const size_t base = stack_.size();
  if (!need_inputs(node_at(restorer), time, choices)) return;
  add_entry(restorer, time, true, base);
  const auto id = static_cast<int>(instances_.size());
  instances_.push_back({root, id});
  now_[root] = id;
  forget_behind(root, choices);
}

// A value that was computed again, and goes after each need.
void StepModel::forget_behind(int root, const Choices& choices) {
  const auto at = static_cast<size_t>(root);
  const int gap = passed_[at] - 1;
  if (gap >= 0 && choices[roots_[at].first_gap + gap] == Keep::kNever) transient_.push_back(root);
}

void StepModel::emit(int position, int time, const Choices& choices) {
  const auto at = static_cast<size_t>(position);
  const NodeInfo& node = nodes_[at];
  if (is_too_long_) return;
  const size_t base = stack_.size();
  if (!need_inputs(node, time, choices)) return;
  const bool is_repeat = std::exchange(has_run_[at], 1) != 0;
  const int first = node.inputs.empty() ? -1 : stack_[base];
  add_entry(position, time, is_repeat, base);
  for (const int output : node.outputs) {
    const auto id = static_cast<int>(instances_.size());
    const auto value = static_cast<size_t>(output);
    if (node.is_reshape) {
      instances_.push_back({output, first < 0 ? -1 : instances_[first].storage});
      now_[value] = id;
      continue;
    }
    instances_.push_back({output, id});
    if (!is_repeat) first_instance_of_[value] = id;
    if (now_[value] >= 0) continue;  // it has stayed; this copy of it has no reader
    now_[value] = id;
    if (is_repeat) forget_behind(output, choices);
  }
}

// Closes the gaps after the uses at this position.
void StepModel::close_gaps(int time, const Choices& choices) {
  for (const int id : used_at_[time]) {
    const auto at = static_cast<size_t>(id);
    const Root& root = roots_[at];
    if (root.maker < 0) continue;
    const int gap = passed_[at]++;
    if (choices[root.first_gap + gap] != Keep::kAlways) now_[at] = -1;
  }
  for (const int id : transient_) {
    const auto at = static_cast<size_t>(id);
    const int gap = passed_[at] - 1;
    if (choices[roots_[at].first_gap + gap] == Keep::kNever) now_[at] = -1;
  }
  transient_.clear();
}

void StepModel::emit_all(const Choices& choices) {
  entries_.clear();
  entry_inputs_.clear();
  instances_.clear();
  transient_.clear();
  stack_.clear();
  loads_.clear();
  is_too_long_ = false;
  std::ranges::fill(now_, -1);
  passed_.assign(roots_.size(), 0);
  has_run_.assign(nodes_.size(), 0);
  for (size_t time = 0; time < nodes_.size() && !is_too_long_; ++time) {
    if (nodes_[time].is_reshape) continue;  // they run when they are needed
    emit(static_cast<int>(time), static_cast<int>(time), choices);
    close_gaps(static_cast<int>(time), choices);
  }
}

const StepModel::NodeInfo& StepModel::info_of(const Entry& entry) const {
  switch (entry.kind) {
    case ScheduledKind::kStore:
      return store_;
    case ScheduledKind::kLoad:
      return load_;
    case ScheduledKind::kNode:
      break;
  }
  return node_at(entry.node);
}

void StepModel::count_reads() {
  reads_of_.assign(instances_.size(), 0);
  for (const int input : entry_inputs_) {
    const int storage = input < 0 ? -1 : instances_[input].storage;
    if (storage >= 0) ++reads_of_[storage];
  }
}

// Measures as make_plan() gives values their buffers.
StepModel::Outcome StepModel::measure() {
  Outcome outcome{.peak_bytes = 0};
  buffers_.clear();
  is_given_again_.assign(roots_.size(), 0);
  buffer_of_.assign(instances_.size(), -1);
  const auto storage_of = [&](int instance) { return instance < 0 ? -1 : instances_[instance].storage; };
  int64_t live = input_bytes_;
  peak_entry_ = 0;
  most_at_.assign(nodes_.size(), 0);
  const auto finish = [&](int id, int entry) {
    Buffer& buffer = buffers_[id];
    buffer.last = entry;
    if (buffer.reads_left == 0) live -= buffer.bytes;
  };
  for (size_t e = 0; e < entries_.size(); ++e) {
    const Entry& entry = entries_[e];
    const NodeInfo& node = info_of(entry);
    const std::span<const int> inputs(entry_inputs_.data() + entry.first_input, node.inputs.size());
    outcome.us += node.us;
    int64_t passing = node.workspace;  // that goes with the node
    if (!node.is_reshape) {
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        const auto instance = static_cast<size_t>(entry.first_output) + o;
        const int reads = reads_of_[instance], value = value_of(entry, o);
        const int64_t bytes = bytes_of_root(value);
        if (bytes == 0 || (reads == 0 && node.is_optional[o] != 0)) continue;
        int taken = -1;
        if (node.in_place[o] >= 0) {
          const int source = storage_of(inputs[node.in_place[o]]);
          taken = source < 0 ? -1 : buffer_of_[source];
          const int spec = spec_of_[node.inputs[node.in_place[o]]];
          int reads_here = 0;
          // Usually only this operand reads it; then there is nothing to count.
          const bool is_sole = taken >= 0 && buffers_[taken].reads_left == 1;
          if (is_sole) reads_here = 1;
          for (size_t i = 0; i < inputs.size() && taken >= 0 && !is_sole; ++i) {
            const int other = storage_of(inputs[i]);
            if (other < 0 || buffer_of_[other] != taken) continue;
            ++reads_here;
            if (spec_of_[node.inputs[i]] != spec) taken = -1;
          }
          if (reads_here > 1 && node.outputs.size() > 1) taken = -1;
          for (size_t before = 0; before < o && taken >= 0; ++before) {
            if (buffer_of_[static_cast<size_t>(entry.first_output) + before] == taken) taken = -1;
          }
          if (taken >= 0 && buffers_[taken].reads_left != reads_here) taken = -1;
        }
        if (taken < 0 && reads == 0) {
          passing += bytes;
          continue;
        }
        if (taken < 0) {
          taken = static_cast<int>(buffers_.size());
          buffers_.push_back({.bytes = bytes, .first = static_cast<int>(e)});
          live += bytes;
        }
        if (const double again_us = again_us_[value]; again_us > 0) {
          outcome.us += entry.kind == ScheduledKind::kNode ? again_us : 0;
          is_given_again_[value] = 1;
        }
        Buffer& buffer = buffers_[taken];
        buffer.reads_left += reads;
        buffer_of_[instance] = taken;
      }
    }
    int64_t& most = most_at_[entry.time];
    most = std::max(most, live + passing);
    if (live + passing > outcome.peak_bytes) {
      outcome.peak_bytes = live + passing;
      peak_entry_ = static_cast<int>(e);
    }
    for (const int input : inputs) {
      const int source = storage_of(input);
      if (source < 0 || buffer_of_[source] < 0) continue;
      const int id = buffer_of_[source];
      --buffers_[id].reads_left;
      finish(id, static_cast<int>(e));
    }
  }
  work_ += static_cast<int64_t>(entries_.size());
  outcome.is_valid = true;
  return outcome;
}

StepModel::Outcome StepModel::evaluate(const Choices& choices) {
  emit_all(choices);
  if (is_too_long_) {
    work_ += static_cast<int64_t>(entries_.size());
    return {};
  }
  count_reads();
  if (!loads_.empty()) insert_copies(choices);
  Outcome outcome = measure();
  if (loads_.empty()) return outcome;
  outcome.us = us_with_copies_;
  outcome.host_bytes = host_bytes_;
  outcome.is_valid = host_bytes_ <= host_.max_bytes;
  return outcome;
}

}  // namespace headroom
