#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "runtime/graph/placement.h"
#include "runtime/plan/plan.h"

// Deliberately naive: it goes through the plan step by step and tracks which value each byte range holds. It
// must not call anything of make_plan.cpp.

namespace headroom {
namespace {

class Checker {
 public:
  Checker(const Graph& graph, const Plan& plan, std::span<const int64_t> workspace_bytes)
      : graph_(graph), plan_(plan), workspace_bytes_(workspace_bytes) {}

  std::optional<std::string> check() {
    if (auto fault = check_sizes()) return fault;
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      position_ = static_cast<int>(i);
      if (auto fault = check_step(plan_.steps[i])) {
        return fmt::format("step {}: {}", i, *fault);
      }
    }
    return check_end();
  }

 private:
  using Fault = std::optional<std::string>;

  const std::string& name(int value) const { return graph_.value(value).name; }
  int buffer_of(int value) const { return plan_.buffer_of_value[value]; }
  int variable_of(int value) const { return plan_.variable_of_value[value]; }
  const std::string& device_of(int buffer) const { return plan_.devices[plan_.buffers[buffer].device].name; }
  bool overlap(const Buffer& a, const Buffer& b) const {
    return a.device == b.device && !a.doubled && !b.doubled && a.offset_bytes < b.offset_bytes + b.bytes &&
           b.offset_bytes < a.offset_bytes + a.bytes;
  }
  const Buffer& buffer(int id) const { return plan_.buffers[id]; }

  Fault check_sizes() const {
    if (plan_.buffer_of_value.size() != graph_.values().size() ||
        plan_.variable_of_value.size() != graph_.values().size() ||
        plan_.workspace_of_node.size() != graph_.nodes().size() ||
        workspace_bytes_.size() != graph_.nodes().size()) {
      return "the plan is for another graph";
    }
    for (size_t id = 0; id < plan_.buffers.size(); ++id) {
      const int device = plan_.buffers[id].device;
      if (device < 0 || device >= static_cast<int>(plan_.devices.size())) {
        return fmt::format("buffer {} is on no device", id);
      }
    }
    const int buffers = static_cast<int>(plan_.buffers.size());
    for (size_t value = 0; value < graph_.values().size(); ++value) {
      const int id = plan_.buffer_of_value[value];
      if (id < -1 || id >= buffers) return fmt::format("{} has no such buffer", graph_.values()[value].name);
      if (id >= 0 && buffer(id).bytes < graph_.values()[value].spec.bytes()) {
        return fmt::format("{} does not fit its buffer", graph_.values()[value].name);
      }
      if (id >= 0 && device_of(id) != graph_.values()[value].device) {
        return fmt::format("{} lies on another device", graph_.values()[value].name);
      }
    }
    for (size_t node = 0; node < graph_.nodes().size(); ++node) {
      const int id = plan_.workspace_of_node[node];
      if (id < -1 || id >= buffers) return fmt::format("{} has no such workspace", graph_.nodes()[node].name);
      if (id >= 0 && buffer(id).bytes < workspace_bytes_[node]) {
        return fmt::format("the workspace of {} is too small", graph_.nodes()[node].name);
      }
      if (id >= 0 && device_of(id) != graph_.nodes()[node].device) {
        return fmt::format("the workspace of {} lies on another device", graph_.nodes()[node].name);
      }
    }
    return {};
  }

  // In dynamic mode buffers are live from their allocate to their deallocate step, in an arena for their
  // stated range.
  bool is_live(int id) const {
    if (buffer(id).doubled) return true;
    if (!has_arena(plan_.mode)) return live_.contains(id);
    return buffer(id).first_step <= position_ && position_ < buffer(id).end_step;
  }

  // A buffer's bytes change: it and, in the arena, every buffer that overlaps it lose their values.
  void overwrite(int id) {
    std::erase_if(content_, [&](const auto& entry) {
      if (entry.second == id) return true;
      if (!has_arena(plan_.mode)) return false;
      return overlap(buffer(id), buffer(entry.second));
    });
  }

  Fault write(int value) {
    const int id = buffer_of(value);
    if (id < 0) return {};
    if (!is_live(id)) return fmt::format("{} is written to memory that is not live", name(value));
    if (buffer(id).doubled && graph_.value(value).kind != ValueKind::kInput) {
      return fmt::format("{} is written over an input of the next step", name(value));
    }
    overwrite(id);
    content_[value] = id;
    return {};
  }

  Fault read(int value) const {
    if (graph_.value(value).spec.bytes() == 0) return {};
    if (variable_of(value) >= 0) {
      if (graph_.value(value).kind == ValueKind::kVariable || made_.contains(value)) return {};
      return fmt::format("{} is read before it is made", name(value));
    }
    const auto found = content_.find(value);
    if (found == content_.end() || !is_live(found->second)) {
      return fmt::format("{} is read but its memory does not hold it", name(value));
    }
    return {};
  }

  Fault check_step(const Step& step) {
    switch (step.kind) {
      case StepKind::kAllocate:
        if (has_arena(plan_.mode)) return "a plan with an arena allocates";
        if (!live_.insert(step.id).second) return fmt::format("buffer {} is allocated twice", step.id);
        live_bytes_[buffer(step.id).device] += buffer(step.id).bytes;
        highest_[buffer(step.id).device] =
            std::max(highest_[buffer(step.id).device], live_bytes_[buffer(step.id).device]);
        return {};
      case StepKind::kDeallocate:
        if (live_.erase(step.id) == 0) return fmt::format("buffer {} is deallocated but not live", step.id);
        live_bytes_[buffer(step.id).device] -= buffer(step.id).bytes;
        overwrite(step.id);
        return {};
      case StepKind::kCopyIn:
        if (mutated_) return "a copy comes after an update";
        if (has_arena(plan_.mode) && !ran_.empty()) return "a copy in comes after a node";
        return write(step.id);
      case StepKind::kCopyOut:
        if (mutated_) return "a copy comes after an update";
        copied_out_.insert(step.id);
        return read(step.id);
      case StepKind::kRun:
        return run(graph_.node(step.id), step.id);
    }
    return "unknown step";
  }

  // The weight that it belongs to lies beside the update.
  bool is_state_on_host(const Node& node, size_t input) const {
    const ValueInfo& value = graph_.value(node.inputs[input]);
    const std::vector<int> changed = mutated_inputs(node.op, node.inputs.size());
    if (value.kind != ValueKind::kVariable || value.device != kHostPlace || changed.empty()) return false;
    return std::find(changed.begin() + 1, changed.end(), static_cast<int>(input)) != changed.end();
  }

  Fault run(const Node& node, int id) {
    if (!ran_.insert(id).second) return fmt::format("{} runs twice", node.name);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int input = node.inputs[i];
      if (auto fault = read(input)) return fmt::format("{}: {}", node.name, *fault);
      // Only a copy reads from another device, and an update what it changes in host memory.
      const bool is_elsewhere = graph_.value(input).device != node.device;
      if (is_elsewhere && !std::holds_alternative<CopyToDevice>(node.op) && !is_state_on_host(node, i)) {
        return fmt::format("{} reads {} from another device", node.name, name(input));
      }
    }
    const bool updates = is_update(node.op);
    if (mutated_ && !updates) return fmt::format("{} comes after an update", node.name);
    if (has_arena(plan_.mode) && !copied_out_.empty() && !updates) {
      return fmt::format("{} comes after a copy out", node.name);
    }
    mutated_ = mutated_ || updates;
    const int workspace = plan_.workspace_of_node[id];
    if (workspace_bytes_[id] > 0) {
      if (workspace < 0 || !is_live(workspace)) return fmt::format("{} has no workspace", node.name);
      overwrite(workspace);
      for (int input : node.inputs) {
        if (auto fault = read(input)) return fmt::format("{}: its workspace destroys an operand", node.name);
      }
    }
    const bool view = std::holds_alternative<Reshape>(node.op);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const int output = node.outputs[i];
      made_.insert(output);
      if (graph_.value(output).spec.bytes() == 0 || variable_of(output) >= 0) continue;
      if (buffer_of(output) < 0) {
        if (!is_optional_output(node.op, i)) return fmt::format("{} has no memory", name(output));
        continue;  // a reader would find that no memory holds it
      }
      if (view && buffer_of(output) == buffer_of(node.inputs[0])) {
        content_[output] = buffer_of(output);
        continue;
      }
      if (auto fault = check_in_place(node, output, i)) return fault;
      if (auto fault = write(output)) return fmt::format("{}: {}", node.name, *fault);
    }
    // Results written later must not have destroyed earlier ones of the same node.
    for (int output : node.outputs) {
      if (buffer_of(output) >= 0 && !content_.contains(output)) {
        return fmt::format("{}: two results share memory", node.name);
      }
    }
    return {};
  }

  // An output may lie over an operand only if the op allows it, and over views of that only if it is the only
  // output: other outputs are computed from operands afterwards.
  Fault check_in_place(const Node& node, int output, size_t index) const {
    std::vector<TensorSpec> specs;
    for (int input : node.inputs) specs.push_back(graph_.value(input).spec);
    const int allowed = in_place_input(node.op, specs, graph_.value(output).spec, index);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int a = buffer_of(node.inputs[i]), b = buffer_of(output);
      if (a < 0) continue;
      const bool shared = a == b || (has_arena(plan_.mode) && overlap(buffer(a), buffer(b)));
      const bool may_be_view = node.outputs.size() == 1 || static_cast<int>(i) == allowed;
      const bool same_operand =
          allowed >= 0 && may_be_view && specs[i] == specs[allowed] && a == buffer_of(node.inputs[allowed]);
      if (shared && !same_operand)
        return fmt::format("{} overwrites its operand {}", node.name, name(node.inputs[i]));
    }
    return {};
  }

  bool is_asked_for(const Node& update) const {
    if (plan_.targets.updated.empty()) return true;
    for (int position : mutated_inputs(update.op, update.inputs.size())) {
      for (const Value& variable : plan_.targets.updated) {
        if (update.inputs[position] == variable.id) return true;
      }
    }
    return false;
  }

  // The inputs of a set lie side by side.
  Fault check_input_set() const {
    int64_t end = 0, sum = 0;
    for (const Buffer& input : plan_.buffers) {
      if (!input.doubled) continue;
      if (input.owner < 0 || graph_.value(input.owner).kind != ValueKind::kInput || input.offset_bytes < 0 ||
          input.offset_bytes % 256 != 0 || input.device != 0) {
        return "a doubled buffer is misplaced";
      }
      for (const Buffer& other : plan_.buffers) {
        if (&other == &input || !other.doubled) continue;
        if (input.offset_bytes < other.offset_bytes + other.bytes &&
            other.offset_bytes < input.offset_bytes + input.bytes) {
          return "two inputs share memory";
        }
      }
      end = std::max(end, input.offset_bytes + input.bytes);
      sum += input.bytes;
    }
    if (end != plan_.input_set_bytes || sum != end) {
      return fmt::format("a set of inputs has {} bytes, the plan says {}", end, plan_.input_set_bytes);
    }
    return {};
  }

  Fault check_end() const {
    if (auto fault = check_input_set()) return fault;
    if (!live_.empty()) return fmt::format("buffer {} is never deallocated", *live_.begin());
    for (const Value& fetch : plan_.targets.fetches) {
      if (!copied_out_.contains(fetch.id))
        return fmt::format("{} is fetched but not copied out", fetch.name());
    }
    for (size_t i = 0; i < graph_.nodes().size() && plan_.targets.updates; ++i) {
      const Node& node = graph_.nodes()[i];
      if (is_update(node.op) && is_asked_for(node) != ran_.contains(static_cast<int>(i))) {
        return fmt::format("the update {} {}", node.name,
                           is_asked_for(node) ? "does not run" : "runs unasked");
      }
    }
    std::map<int, int64_t> peaks = highest_;
    if (has_arena(plan_.mode)) {
      for (const Step& step : plan_.steps) {
        if (step.kind != StepKind::kCopyIn || graph_.value(step.id).spec.bytes() == 0) continue;
        if (!content_.contains(step.id)) return fmt::format("the input {} is overwritten", name(step.id));
      }
      for (size_t a = 0; a < plan_.buffers.size(); ++a) {
        const Buffer& first = plan_.buffers[a];
        if (first.doubled) continue;
        if (first.offset_bytes < 0 || first.offset_bytes % 256 != 0)
          return fmt::format("buffer {} is misplaced", a);
        peaks[first.device] = std::max(peaks[first.device], first.offset_bytes + first.bytes);
        for (size_t b = a + 1; b < plan_.buffers.size(); ++b) {
          const Buffer& second = plan_.buffers[b];
          if (second.doubled) continue;
          const bool in_time = first.first_step < second.end_step && second.first_step < first.end_step;
          if (in_time && overlap(first, second)) return fmt::format("buffers {} and {} overlap", a, b);
        }
      }
    }
    int64_t sum = 0;
    for (size_t i = 0; i < plan_.devices.size(); ++i) {
      const int64_t peak = peaks[static_cast<int>(i)], stated = plan_.devices[i].peak_bytes;
      if (plan_.devices[i].name != kHostPlace) sum += peak;
      if (peak != stated) return fmt::format("the peak is {} bytes, the plan says {}", peak, stated);
    }
    if (sum != plan_.peak_bytes)
      return fmt::format("the peaks are {} bytes together, the plan says {}", sum, plan_.peak_bytes);
    return {};
  }

  const Graph& graph_;
  const Plan& plan_;
  std::span<const int64_t> workspace_bytes_;
  std::set<int> live_, made_, ran_, copied_out_;
  std::map<int, int> content_;                   // value -> the buffer that holds it now
  std::map<int, int64_t> live_bytes_, highest_;  // by device
  int position_ = 0;
  bool mutated_ = false;
};

}  // namespace

std::optional<std::string> find_fault(const Graph& graph, const Plan& plan,
                                      std::span<const int64_t> workspace_bytes) {
  return Checker(graph, plan, workspace_bytes).check();
}

}  // namespace headroom
