#include "runtime/session/capture_tasks.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "runtime/graph/placement.h"
#include "runtime/plan/dependencies.h"

namespace headroom {
namespace {

bool changes(const Node& node, int value) {
  if (std::ranges::find(node.outputs, value) != node.outputs.end()) return true;
  const std::vector<int> mutated = mutated_inputs(node.op, node.inputs.size());
  return std::ranges::any_of(mutated, [&](int i) { return node.inputs[static_cast<size_t>(i)] == value; });
}

// A kernel may read inputs before it waits if none of the nodes that it waits for changes them: all earlier
// nodes are done by then.
bool may_start_early(const BoundPlan& plan, int id, const Waits& waits, const std::vector<int>& nodes) {
  const std::optional<std::vector<int>> early = plan.node(id).kernel->early_inputs();
  if (!early) return false;
  const Graph& graph = plan.graph();
  return std::ranges::all_of(*early, [&](int input) {
    const int value = graph.node(id).inputs[static_cast<size_t>(input)];
    const auto changed_by = [&](int position) {
      return changes(graph.node(nodes[static_cast<size_t>(position)]), value);
    };
    return std::ranges::none_of(waits.after, changed_by) &&
           std::ranges::none_of(waits.after_previous, changed_by);
  });
}

// Copies to host memory follow each other, and so do those from there, as if each direction had a stream: the
// link carries them in the order in which the plan needs them. Work that does not wait for them runs
// concurrently.
void put_host_copies_in_order(const Graph& graph, std::span<const int> nodes, std::vector<Task>& tasks) {
  std::array<int, 2> last = {-1, -1};  // by direction
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = graph.node(nodes[i]);
    if (!is_host_copy(graph, node)) continue;
    const size_t direction = is_store_to_host(node) ? 0 : 1;
    tasks[i].lane = 1 + static_cast<int>(direction);
    int& before = last[direction];
    std::vector<int>& after = tasks[i].after;
    if (before >= 0 && std::ranges::find(after, before) == after.end()) after.push_back(before);
    before = static_cast<int>(i);
  }
}

}  // namespace

std::vector<Task> make_tasks(const BoundPlan& plan, std::span<const int> nodes, UpdatesBegin updates,
                             const std::function<void(int node, Stream)>& run) {
  const Graph& graph = plan.graph();
  // A reshape has nothing to do: its result is its operand.
  std::vector<int> working;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(working),
               [&](int id) { return !std::holds_alternative<Reshape>(graph.node(id).op); });
  const std::vector<Waits> waits = find_dependencies(graph, plan.plan(), working);
  std::vector<Task> tasks;
  for (size_t i = 0; i < working.size(); ++i) {
    const int id = working[i];
    tasks.push_back({[run, id](Stream stream) { run(id, stream); }, waits[i].after, waits[i].after_previous,
                     may_start_early(plan, id, waits[i], working),
                     plan.node(id).kernel->collective() != nullptr, plan.node(id).on->device});
  }
  put_host_copies_in_order(graph, working, tasks);
  if (updates == UpdatesBegin::kWithTheirOperands) return tasks;
  const auto is_update_at = [&](size_t i) { return is_update(graph.node(working[i]).op); };
  for (size_t i = 0; i < working.size(); ++i) {
    for (size_t j = 0; j < i && is_update_at(i); ++j) {
      if (!is_update_at(j)) tasks[i].after.push_back(static_cast<int>(j));
    }
  }
  return tasks;
}

}  // namespace headroom
