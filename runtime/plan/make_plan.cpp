#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "allocators/allocator.h"
#include "allocators/packing/pack.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "runtime/graph/data_flow.h"
#include "runtime/graph/placement.h"
#include "runtime/plan/plan.h"

namespace headroom {
namespace {

bool is_wanted_update(const Node& node, const Targets& targets) {
  if (!targets.updates || !is_update(node.op)) return false;
  const auto is_asked_for = [&](int position) {
    const int variable = node.inputs[position];
    return std::ranges::any_of(targets.updated, [&](const Value& v) { return v.id == variable; });
  };
  const std::vector<int> changed = mutated_inputs(node.op, node.inputs.size());
  return targets.updated.empty() || std::ranges::any_of(changed, is_asked_for);
}

// Builds one plan. The first pass orders the nodes; the second gives each value a buffer and records where
// buffers are used; the third writes the steps.
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
    find_devices();
    schedule();
    count_reads();
    find_order();
    place_values();
    stretch_lives();
    write_steps();
    measure();
    return std::move(plan_);
  }

 private:
  // A copy in, a node or a copy out; write_steps() puts allocations around them.
  struct Event {
    StepKind kind;
    int id;
  };
  // The events during which a buffer is live, both ends included.
  struct Life {
    int first, last;
  };

  const ValueInfo& value(int id) const { return graph_.value(id); }

  void check_targets() const {
    if (workspace_bytes_.size() != graph_.nodes().size()) {
      throw InvalidArgument(fmt::format("plan: {} workspace sizes for {} nodes", workspace_bytes_.size(),
                                        graph_.nodes().size()));
    }
    for (const Value& value : plan_.targets.updated) {
      if (value.graph != &graph_)
        throw InvalidArgument("plan: a variable to update belongs to another graph");
    }
    for (const Value& fetch : plan_.targets.fetches) {
      if (fetch.graph != &graph_) throw InvalidArgument("plan: a fetch belongs to another graph");
      if (value(fetch.id).kind == ValueKind::kResult && !made(fetch.id)) {
        throw InvalidArgument(
            fmt::format("plan: no node makes {}; a value to fetch must be kept from fuse()", fetch.name()));
      }
    }
  }

  void find_devices() {
    std::vector<std::string> names = devices_of(graph_);
    for (const Node& node : graph_.nodes()) {
      const std::string why_not = find_operand_elsewhere(graph_, node);
      if (!why_not.empty()) throw InvalidArgument(why_not);
    }
    for (std::string& name : names) plan_.devices.push_back({std::move(name)});
  }

  // Position in the plan's devices.
  int device_of(const std::string& name) const {
    for (size_t i = 0; i < plan_.devices.size(); ++i) {
      if (plan_.devices[i].name == name) return static_cast<int>(i);
    }
    return 0;
  }

  bool made(int id) const {
    return std::ranges::any_of(graph_.nodes(), [&](const Node& node) {
      return std::ranges::find(node.outputs, id) != node.outputs.end();
    });
  }

  // The nodes that the targets need, in graph order: pure ones, then the copies out, then the updates.
  void schedule() {
    const NeededNodes needed = find_needed_nodes(graph_, plan_.targets);
    std::vector<bool> copied(graph_.values().size());
    const auto copy_in = [&](int id) {
      if (value(id).kind != ValueKind::kInput || copied[id]) return;
      copied[id] = true;
      events_.push_back({StepKind::kCopyIn, id});
    };
    const auto for_nodes = [&](bool updates, const auto& visit) {
      for (const int id : updates ? needed.updates : needed.pure) visit(id, graph_.node(id));
    };
    const auto copy_inputs = [&](int, const Node& node) {
      for (int input : node.inputs) copy_in(input);
    };
    const auto run = [&](int id, const Node& node) {
      copy_inputs(id, node);
      events_.push_back({StepKind::kRun, id});
    };
    const auto copy_rest = [&] {
      for_nodes(true, copy_inputs);
      for (const Value& fetch : plan_.targets.fetches) copy_in(fetch.id);
    };
    if (has_arena(plan_.mode)) {
      for_nodes(false, copy_inputs);
      copy_rest();
    }
    for_nodes(false, run);
    // Inputs of updates alone (a learning rate) come before the copies out: a copy can fail.
    copy_rest();
    for (const Value& fetch : plan_.targets.fetches) events_.push_back({StepKind::kCopyOut, fetch.id});
    for_nodes(true, run);
  }

  // Counts the events that read each value.
  void count_reads() {
    reads_.assign(graph_.values().size(), 0);
    for (const Event& event : events_) {
      if (event.kind == StepKind::kCopyOut) ++reads_[event.id];
      if (event.kind != StepKind::kRun) continue;
      for (int input : graph_.node(event.id).inputs) ++reads_[input];
    }
  }

  void find_order() {
    if (plan_.mode != PlanMode::kParallel) return;
    std::vector<int> nodes;
    for (const Event& event : events_) nodes.push_back(event.kind == StepKind::kRun ? event.id : -1);
    precedence_.emplace(find_predecessors(graph_, nodes));
  }

  // Returns true if the data flow orders every earlier user of the buffer before that event. The latest users
  // are the least likely to be ordered.
  bool is_free_for(int buffer, int event) {
    const std::vector<int>& users = users_[buffer];
    return plan_.mode != PlanMode::kParallel || std::all_of(users.rbegin(), users.rend(), [&](int user) {
             return precedence_->has(static_cast<size_t>(event), static_cast<size_t>(user));
           });
  }

  int new_buffer(int64_t bytes, int owner, int node, int event) {
    const std::string& device = node >= 0 ? graph_.node(node).device : value(owner).device;
    plan_.buffers.push_back(
        {round_up(bytes, Allocator::kAlignment), 0, 0, -1, owner, node, device_of(device)});
    lives_.push_back({event, event});
    reads_left_.push_back(0);
    users_.emplace_back();
    return static_cast<int>(plan_.buffers.size()) - 1;
  }

  // Makes `id` live in `buffer` from this event on.
  void put(int id, int buffer) {
    plan_.buffer_of_value[id] = buffer;
    reads_left_[buffer] += reads_[id];
  }

  // The buffer of an input that an output of the node may take over: the input dies here, no other operand
  // views the buffer under another shape, or at all where the node makes further outputs from its operands,
  // and no earlier output has taken it.
  int take_over(const Node& node, size_t index, int event) {
    std::vector<TensorSpec> specs;
    for (int input : node.inputs) specs.push_back(value(input).spec);
    const TensorSpec& output = value(node.outputs[index]).spec;
    const int position = in_place_input(node.op, specs, output, index);
    if (position < 0 || specs[position].bytes() != output.bytes()) return -1;
    const int buffer = plan_.buffer_of_value[node.inputs[position]];
    if (buffer < 0) return -1;
    for (size_t i = 0; i < index; ++i) {
      if (plan_.buffer_of_value[node.outputs[i]] == buffer) return -1;
    }
    int reads_here = 0;
    for (int input : node.inputs) {
      if (plan_.buffer_of_value[input] != buffer) continue;
      ++reads_here;
      if (value(input).spec != specs[position]) return -1;
    }
    if (reads_here > 1 && node.outputs.size() > 1) return -1;
    const bool dies = reads_left_[buffer] == reads_here;
    if (!dies || !is_free_for(buffer, event)) return -1;
    users_[buffer].clear();  // events after this one come after all of them
    return buffer;
  }

  void place_values() {
    for (int id : graph_.variables()) plan_.variable_of_value[id] = id;
    for (int event = 0; event < static_cast<int>(events_.size()); ++event) {
      const auto [kind, id] = events_[event];
      if (kind == StepKind::kCopyIn && value(id).spec.bytes() > 0) {
        put(id, new_buffer(value(id).spec.bytes(), id, -1, event));
        if (plan_.targets.doubled_inputs) {
          Buffer& buffer = plan_.buffers.back();
          if (buffer.device != 0) {
            throw InvalidArgument(
                fmt::format("plan: the doubled input {} is not on the default device", value(id).name));
          }
          buffer.doubled = true;
          buffer.offset_bytes = plan_.input_set_bytes;
          plan_.input_set_bytes += buffer.bytes;
        }
        // The next step may read it again, without a copy.
        if (has_arena(plan_.mode) || plan_.targets.doubled_inputs) ++reads_left_.back();
      }
      if (kind == StepKind::kRun) place_node(id, event);
      if (kind == StepKind::kCopyOut) read(id, event);
    }
  }

  void read(int id, int event) {
    const int buffer = plan_.buffer_of_value[id];
    if (buffer < 0) return;
    --reads_left_[buffer];
    use(buffer, event);
  }

  // A reshape is a reader in the plan, but does nothing with the memory.
  void use(int buffer, int event) {
    lives_[buffer].last = event;
    const auto [kind, id] = events_[event];
    if (kind == StepKind::kRun && std::holds_alternative<Reshape>(graph_.node(id).op)) return;
    users_[buffer].push_back(event);
  }

  void place_node(int id, int event) {
    const Node& node = graph_.node(id);
    const int64_t workspace = workspace_bytes_[id];
    if (workspace > 0) {
      plan_.workspace_of_node[id] = new_buffer(workspace, -1, id, event);
      use(plan_.workspace_of_node[id], event);
    }

    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const int output = node.outputs[i];
      const TensorSpec& spec = value(output).spec;
      const bool unread = reads_[output] == 0 && is_optional_output(node.op, i);
      if (spec.bytes() == 0 || unread) continue;
      if (std::holds_alternative<Reshape>(node.op)) {
        const auto source = static_cast<size_t>(node.inputs[0]);
        plan_.variable_of_value[output] = plan_.variable_of_value[source];
        if (plan_.buffer_of_value[source] >= 0) put(output, plan_.buffer_of_value[source]);
        continue;
      }
      const int shared = take_over(node, i, event);
      put(output, shared >= 0 ? shared : new_buffer(spec.bytes(), output, id, event));
      use(plan_.buffer_of_value[output], event);
    }
    for (int input : node.inputs) read(input, event);
  }

  // With an arena inputs stay to the end; in parallel mode a buffer lives until the last buffer begins that
  // must not share its memory.
  void stretch_lives() {
    if (!has_arena(plan_.mode)) return;
    std::vector<int> last_unordered;  // by event: the last beginning of a buffer that need not wait for it
    if (plan_.mode == PlanMode::kParallel) {
      std::vector<int> begins;
      for (const Life& life : lives_) begins.push_back(life.first);
      std::ranges::sort(begins);
      begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
      last_unordered = precedence_->last_unordered(begins);
    }
    for (size_t a = 0; a < lives_.size(); ++a) {
      if (plan_.buffers[a].node < 0) lives_[a].last = static_cast<int>(events_.size()) - 1;
      if (last_unordered.empty()) continue;
      for (const int user : users_[a]) {
        lives_[a].last = std::max(lives_[a].last, last_unordered[user]);
      }
    }
  }

  // Writes the events as steps, with each buffer's allocation just before its first event and its
  // deallocation just after its last.
  void write_steps() {
    const size_t count = events_.size();
    std::vector<std::vector<int>> begins(count), ends(count);
    for (size_t buffer = 0; buffer < lives_.size(); ++buffer) {
      if (plan_.buffers[buffer].doubled) continue;
      begins[lives_[buffer].first].push_back(static_cast<int>(buffer));
      ends[lives_[buffer].last].push_back(static_cast<int>(buffer));
    }
    const bool dynamic = !has_arena(plan_.mode);
    const auto position = [&] { return static_cast<int>(plan_.steps.size()); };
    for (size_t event = 0; event < count; ++event) {
      for (int buffer : begins[event]) {
        plan_.buffers[buffer].first_step = position();
        if (dynamic) plan_.steps.push_back({StepKind::kAllocate, buffer});
      }
      plan_.steps.push_back({events_[event].kind, events_[event].id});
      for (int buffer : ends[event]) {
        if (dynamic) plan_.steps.push_back({StepKind::kDeallocate, buffer});
        plan_.buffers[buffer].end_step = position();
      }
    }
    for (Buffer& buffer : plan_.buffers) {
      if (buffer.doubled) buffer.end_step = position();
    }
  }

  void measure() {
    for (size_t i = 0; i < plan_.devices.size(); ++i) {
      PlanDevice& device = plan_.devices[i];
      measure([&](const Buffer& buffer) { return buffer.device == static_cast<int>(i); },
              &device.lower_bound_bytes, &device.peak_step);
      device.peak_bytes = has_arena(plan_.mode) ? pack_device(static_cast<int>(i)) : device.lower_bound_bytes;
      if (device.name != kHostPlace) plan_.peak_bytes += device.peak_bytes;
    }
    if (plan_.devices.size() == 1) {
      plan_.lower_bound_bytes = plan_.devices[0].lower_bound_bytes;
      plan_.peak_step = plan_.devices[0].peak_step;
    } else {
      const auto is_on_device = [&](const Buffer& buffer) {
        return plan_.devices[buffer.device].name != kHostPlace;
      };
      measure(is_on_device, &plan_.lower_bound_bytes, &plan_.peak_step);
    }
  }

  // The most bytes of these buffers that are live at once, and when.
  template <typename F>
  void measure(F is_counted, int64_t* bytes, int* step_of_it) const {
    std::vector<int64_t> change(plan_.steps.size() + 1, 0);
    for (const Buffer& buffer : plan_.buffers) {
      if (buffer.doubled || !is_counted(buffer)) continue;
      change[buffer.first_step] += buffer.bytes;
      change[buffer.end_step] -= buffer.bytes;
    }
    int64_t live = 0;
    for (size_t step = 0; step < plan_.steps.size(); ++step) {
      live += change[step];
      if (live <= *bytes) continue;
      *bytes = live;
      *step_of_it = static_cast<int>(step);
    }
  }

  int64_t pack_device(int device) {
    const auto is_packed = [&](const Buffer& buffer) { return buffer.device == device && !buffer.doubled; };
    std::vector<Buffer> buffers;
    std::copy_if(plan_.buffers.begin(), plan_.buffers.end(), std::back_inserter(buffers), is_packed);
    const int64_t bytes = pack(buffers);
    auto packed = buffers.begin();
    for (Buffer& buffer : plan_.buffers) {
      if (is_packed(buffer)) buffer = *packed++;
    }
    return bytes;
  }

  const Graph& graph_;
  std::span<const int64_t> workspace_bytes_;
  Plan plan_;
  std::vector<Event> events_;
  std::vector<int> reads_;                // by value: events that read it
  std::vector<Life> lives_;               // by buffer
  std::vector<int> reads_left_;           // by buffer: reads still to come of the values put there so far
  std::vector<std::vector<int>> users_;   // by buffer: events that read it or wrote it last
  std::optional<Precedence> precedence_;  // order of events, in parallel mode
};

}  // namespace

NeededNodes find_needed_nodes(const Graph& graph, const Targets& targets) {
  std::vector<bool> is_read(graph.values().size());
  for (const Value& fetch : targets.fetches) is_read[fetch.id] = true;
  NeededNodes needed;
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    const bool is_wanted = is_wanted_update(node, targets) ||
                           std::ranges::any_of(node.outputs, [&](int output) { return is_read[output]; });
    if (!is_wanted) continue;
    for (const int input : node.inputs) is_read[input] = true;
    (is_update(node.op) ? needed.updates : needed.pure).push_back(static_cast<int>(i));
  }
  std::ranges::reverse(needed.pure);
  std::ranges::reverse(needed.updates);
  return needed;
}

int64_t host_bytes_of(const Plan& plan) {
  int64_t bytes = 0;
  for (const PlanDevice& device : plan.devices) bytes += device.name == kHostPlace ? device.peak_bytes : 0;
  return bytes;
}

Plan make_plan(const Graph& graph, const Targets& targets, PlanMode mode,
               std::span<const int64_t> workspace_bytes) {
  return Planner(graph, targets, mode, workspace_bytes).make();
}

// A search for a budget packs hundreds of steps. 32 times as much work took 0.1 % off one of eight nets
// (ResNet-50, batch 16), and 51 s instead of 14 for the budgets of ResNet-50 on one core.
constexpr int64_t kPackingWork = int64_t{1} << 25;

int64_t pack(std::span<Buffer> buffers) {
  std::vector<PlannedBlock> blocks;
  for (const Buffer& buffer : buffers) blocks.push_back({buffer.bytes, buffer.first_step, buffer.end_step});
  const int64_t height = pack(blocks, {.max_work = kPackingWork}).height_bytes;
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].offset_bytes = blocks[i].offset_bytes;
  return height;
}

}  // namespace headroom
