#include <fmt/format.h>

#include <algorithm>

#include "allocators/allocator.h"
#include "runtime/core/bytes.h"
#include "runtime/core/errors.h"
#include "runtime/plan.h"

namespace headroom {
namespace {

// Builds one plan. A first pass fixes the order of the nodes; a second walks it, gives each value a buffer
// and notes where buffers are used; a third writes the steps out.
class Planner {
 public:
  Planner(const Graph& graph, const Targets& targets, PlanMode mode, std::span<const int64_t> workspace_bytes)
      : graph_(graph), workspace_bytes_(workspace_bytes) {
    plan_.mode = mode;
    plan_.targets = targets;
    plan_.buffer_of_value.assign(graph.values().size(), -1);
    plan_.variable_of_value.assign(graph.values().size(), -1);
    plan_.workspace_of_node.assign(graph.nodes().size(), -1);
  }

  Plan make() {
    check_targets();
    schedule();
    count_reads();
    place_values();
    write_steps();
    measure();
    return std::move(plan_);
  }

 private:
  // A copy in, a node or a copy out; allocations are put around them at the end.
  struct Event {
    StepKind kind;
    int id;
  };
  // Events during which a buffer is live, both ends included.
  struct Life {
    int first, last;
  };

  const ValueInfo& value(int id) const { return graph_.value(id); }

  void check_targets() const {
    if (workspace_bytes_.size() != graph_.nodes().size()) {
      throw InvalidArgument(fmt::format("plan: {} workspace sizes for {} nodes", workspace_bytes_.size(),
                                        graph_.nodes().size()));
    }
    for (const Value& fetch : plan_.targets.fetches) {
      if (fetch.graph != &graph_) throw InvalidArgument("plan: a fetch belongs to another graph");
      if (value(fetch.id).kind == ValueKind::kResult && !made(fetch.id)) {
        throw InvalidArgument(
            fmt::format("plan: no node makes {}; a value to fetch must be kept from fuse()", fetch.name()));
      }
    }
  }

  bool made(int id) const {
    return std::any_of(graph_.nodes().begin(), graph_.nodes().end(), [&](const Node& node) {
      return std::find(node.outputs.begin(), node.outputs.end(), id) != node.outputs.end();
    });
  }

  // Nodes that the targets need, in graph order: pure ones, then the copies out, then the updates.
  void schedule() {
    const size_t count = graph_.nodes().size();
    std::vector<bool> value_needed(graph_.values().size()), node_needed(count);
    for (const Value& fetch : plan_.targets.fetches) value_needed[static_cast<size_t>(fetch.id)] = true;
    for (size_t i = count; i-- > 0;) {
      const Node& node = graph_.nodes()[i];
      bool needed = plan_.targets.updates && !mutated_inputs(node.op).empty();
      for (int output : node.outputs) needed = needed || value_needed[static_cast<size_t>(output)];
      node_needed[i] = needed;
      if (!needed) continue;
      for (int input : node.inputs) value_needed[static_cast<size_t>(input)] = true;
    }
    std::vector<bool> copied(graph_.values().size());
    const auto copy_in = [&](int id) {
      if (value(id).kind != ValueKind::kInput || copied[static_cast<size_t>(id)]) return;
      copied[static_cast<size_t>(id)] = true;
      events_.push_back({StepKind::kCopyIn, id});
    };
    const auto run = [&](bool updates) {
      for (size_t i = 0; i < count; ++i) {
        const Node& node = graph_.nodes()[i];
        if (!node_needed[i] || mutated_inputs(node.op).empty() == updates) continue;
        for (int input : node.inputs) copy_in(input);
        events_.push_back({StepKind::kRun, static_cast<int>(i)});
      }
    };
    run(false);
    // Inputs that only updates read (a learning rate) are copied before the copies out: a copy can fail.
    if (plan_.targets.updates) {
      for (size_t i = 0; i < count; ++i) {
        if (!node_needed[i] || mutated_inputs(graph_.nodes()[i].op).empty()) continue;
        for (int input : graph_.nodes()[i].inputs) copy_in(input);
      }
    }
    for (const Value& fetch : plan_.targets.fetches) {
      copy_in(fetch.id);
      events_.push_back({StepKind::kCopyOut, fetch.id});
    }
    run(true);
  }

  // How many events read each value.
  void count_reads() {
    reads_.assign(graph_.values().size(), 0);
    for (const Event& event : events_) {
      if (event.kind == StepKind::kCopyOut) ++reads_[static_cast<size_t>(event.id)];
      if (event.kind != StepKind::kRun) continue;
      for (int input : graph_.node(event.id).inputs) ++reads_[static_cast<size_t>(input)];
    }
  }

  int new_buffer(int64_t bytes, int owner, int node, int event) {
    plan_.buffers.push_back({round_up(bytes, Allocator::kAlignment), 0, 0, -1, owner, node});
    lives_.push_back({event, event});
    reads_left_.push_back(0);
    return static_cast<int>(plan_.buffers.size()) - 1;
  }

  // Makes `id` live in `buffer` from this event on.
  void put(int id, int buffer) {
    plan_.buffer_of_value[static_cast<size_t>(id)] = buffer;
    reads_left_[static_cast<size_t>(buffer)] += reads_[static_cast<size_t>(id)];
  }

  // The buffer that output 0 of the node may take over: of an input that dies here and that no other operand
  // views under another shape.
  int take_over(const Node& node, const TensorSpec& output) const {
    std::vector<TensorSpec> specs;
    for (int input : node.inputs) specs.push_back(value(input).spec);
    const int position = in_place_input(node.op, specs, output);
    if (position < 0 || specs[static_cast<size_t>(position)].bytes() != output.bytes()) return -1;
    const int buffer = plan_.buffer_of_value[static_cast<size_t>(node.inputs[static_cast<size_t>(position)])];
    if (buffer < 0) return -1;
    int reads_here = 0;
    for (int input : node.inputs) {
      if (plan_.buffer_of_value[static_cast<size_t>(input)] != buffer) continue;
      ++reads_here;
      if (value(input).spec != specs[static_cast<size_t>(position)]) return -1;
    }
    return reads_left_[static_cast<size_t>(buffer)] == reads_here ? buffer : -1;
  }

  void place_values() {
    for (int id : graph_.variables()) plan_.variable_of_value[static_cast<size_t>(id)] = id;
    for (int event = 0; event < static_cast<int>(events_.size()); ++event) {
      const auto [kind, id] = events_[static_cast<size_t>(event)];
      if (kind == StepKind::kCopyIn && value(id).spec.bytes() > 0) {
        put(id, new_buffer(value(id).spec.bytes(), id, -1, event));
      }
      if (kind == StepKind::kRun) place_node(id, event);
      if (kind == StepKind::kCopyOut) read(id, event);
    }
  }

  void read(int id, int event) {
    const int buffer = plan_.buffer_of_value[static_cast<size_t>(id)];
    if (buffer < 0) return;
    lives_[static_cast<size_t>(buffer)].last = event;
    --reads_left_[static_cast<size_t>(buffer)];
  }

  void place_node(int id, int event) {
    const Node& node = graph_.node(id);
    const int64_t workspace = workspace_bytes_[static_cast<size_t>(id)];
    if (workspace > 0)
      plan_.workspace_of_node[static_cast<size_t>(id)] = new_buffer(workspace, -1, id, event);

    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const int output = node.outputs[i];
      const TensorSpec& spec = value(output).spec;
      const bool unread = reads_[static_cast<size_t>(output)] == 0 && is_optional_output(node.op, i);
      if (spec.bytes() == 0 || unread) continue;
      if (std::holds_alternative<Reshape>(node.op)) {
        const auto source = static_cast<size_t>(node.inputs[0]);
        plan_.variable_of_value[static_cast<size_t>(output)] = plan_.variable_of_value[source];
        if (plan_.buffer_of_value[source] >= 0) put(output, plan_.buffer_of_value[source]);
        continue;
      }
      const int shared = i == 0 ? take_over(node, spec) : -1;
      put(output, shared >= 0 ? shared : new_buffer(spec.bytes(), output, id, event));
      lives_[static_cast<size_t>(plan_.buffer_of_value[static_cast<size_t>(output)])].last = event;
    }
    for (int input : node.inputs) read(input, event);
  }

  // Writes the events out as steps with each buffer's allocation just before its first event and its
  // deallocation just after its last.
  void write_steps() {
    const size_t count = events_.size();
    std::vector<std::vector<int>> begins(count), ends(count);
    for (size_t buffer = 0; buffer < lives_.size(); ++buffer) {
      begins[static_cast<size_t>(lives_[buffer].first)].push_back(static_cast<int>(buffer));
      ends[static_cast<size_t>(lives_[buffer].last)].push_back(static_cast<int>(buffer));
    }
    const bool dynamic = plan_.mode == PlanMode::kDynamic;
    const auto position = [&] { return static_cast<int>(plan_.steps.size()); };
    for (size_t event = 0; event < count; ++event) {
      for (int buffer : begins[event]) {
        plan_.buffers[static_cast<size_t>(buffer)].first_step = position();
        if (dynamic) plan_.steps.push_back({StepKind::kAllocate, buffer});
      }
      plan_.steps.push_back({events_[event].kind, events_[event].id});
      for (int buffer : ends[event]) {
        if (dynamic) plan_.steps.push_back({StepKind::kDeallocate, buffer});
        plan_.buffers[static_cast<size_t>(buffer)].end_step = position();
      }
    }
  }

  void measure() {
    std::vector<int64_t> change(plan_.steps.size() + 1, 0);
    for (const Buffer& buffer : plan_.buffers) {
      change[static_cast<size_t>(buffer.first_step)] += buffer.bytes;
      change[static_cast<size_t>(buffer.end_step)] -= buffer.bytes;
    }
    int64_t live = 0;
    for (size_t step = 0; step < plan_.steps.size(); ++step) {
      live += change[step];
      if (live <= plan_.lower_bound_bytes) continue;
      plan_.lower_bound_bytes = live;
      plan_.peak_step = static_cast<int>(step);
    }
    plan_.peak_bytes = plan_.mode == PlanMode::kPacked ? pack(plan_.buffers) : plan_.lower_bound_bytes;
  }

  const Graph& graph_;
  std::span<const int64_t> workspace_bytes_;
  Plan plan_;
  std::vector<Event> events_;
  std::vector<int> reads_;       // by value: events that read it
  std::vector<Life> lives_;      // by buffer
  std::vector<int> reads_left_;  // by buffer: reads still to come of the values put there so far
};

}  // namespace

Plan make_plan(const Graph& graph, const Targets& targets, PlanMode mode,
               std::span<const int64_t> workspace_bytes) {
  return Planner(graph, targets, mode, workspace_bytes).make();
}

std::string_view to_string(PlanMode mode) {
  return mode == PlanMode::kPacked ? "packed" : "dynamic";
}

}  // namespace headroom
