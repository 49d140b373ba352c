#include "answers/variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "runtime/graph/host_state.h"
#include "runtime/graph/placement.h"
#include "runtime/plan/compress_norms.h"
#include "runtime/plan/split_batch.h"
#include "runtime/plan/split_loss.h"
#include "runtime/session/variables.h"

namespace headroom {
namespace {

// Parts of more nodes than this together take long to plan.
constexpr size_t kMostNodesOfParts = 10'000;
// If the logits are a smaller share of the step than this, they are not worth a search.
constexpr double kLeastLogitsShare = 0.05;
// Shares of the optimizer's state in host memory. Each is a search of its own.
constexpr std::array kStateShares = {0.25, 0.5, 0.75, 1.0};

bool has_too_many_nodes(const Program& program, int parts) {
  return program.graph->nodes().size() * static_cast<size_t>(parts) > kMostNodesOfParts;
}

std::vector<Value> all_fetches(std::span<const Targets> targets) {
  std::vector<Value> fetches;
  for (const Targets& some : targets) fetches.insert(fetches.end(), some.fetches.begin(), some.fetches.end());
  return fetches;
}

}  // namespace

std::optional<Lever> compressed_norms(const Program& program) {
  if (compress_norms(*program.graph->copy(), all_fetches(program.targets)) == 0) return {};
  return Lever{.name = kCompressNormsLever,
               .what = "stores inputs of batch norm gradients in 8 bits",
               .apply = [](Graph& graph,
                           std::span<const Targets> targets) { compress_norms(graph, all_fetches(targets)); },
               .text = "with norms in 8 bits",
               .label = "norms",
               .bits = "gradients of batch norms read 8 bits"};
}

std::optional<Lever> loss_in_parts(const Program& program, int parts, int64_t step_bytes) {
  if (has_too_many_nodes(program, 1)) return {};
  const auto logits_bytes =
      static_cast<double>(splittable_logits_bytes(*program.graph, all_fetches(program.targets)));
  if (logits_bytes <= kLeastLogitsShare * static_cast<double>(step_bytes)) return {};
  return Lever{
      .name = kSplitLossLever,
      .what = "computes the loss and its gradient by parts of the rows",
      .apply = [parts](Graph& graph,
                       std::span<const Targets> targets) { split_loss(graph, parts, all_fetches(targets)); },
      .amount = parts,
      .text = fmt::format("with the loss in {} parts", parts),
      .label = fmt::format("loss {}", parts),
      .bits = fmt::format("the loss is computed in {} parts: sums round in another order", parts)};
}

std::optional<Lever> batch_in_parts(const Program& program, int parts) {
  if (!program.part || has_too_many_nodes(program, parts)) return {};
  std::shared_ptr<const Graph> part = program.part(parts);
  if (part == nullptr || !why_not_split(*program.graph, *part, parts, program.targets).empty()) return {};
  const bool normalizes = std::ranges::any_of(part->nodes(), [](const Node& node) {
    return std::holds_alternative<BatchNorm>(node.op) || std::holds_alternative<BatchNormStatistics>(node.op);
  });
  return Lever{.name = kSplitBatchLever,
               .what = "runs parts of the batch in sequence",
               .apply = [parts, part = std::move(part)](
                            Graph& graph,
                            std::span<const Targets> targets) { split_batch(graph, *part, parts, targets); },
               .amount = parts,
               .text = fmt::format("in {} parts", parts),
               .label = fmt::format("{}", parts),
               .bits = fmt::format(
                   "the batch runs in {} parts: sums round in another order{}", parts,
                   normalizes ? ", and each batch normalization takes its statistics from one part" : "")};
}

std::vector<Lever> states_on_host(const Program& program, int64_t host_bytes) {
  const std::vector<int> states = find_movable_states(*program.graph, all_fetches(program.targets));
  const auto bytes_of = [&](int id) { return Variables::block_bytes(program.graph->value(id)); };
  int64_t all_bytes = 0, before = 0;
  for (const int id : states) all_bytes += bytes_of(id);
  std::vector<Lever> changes;
  for (const double share : kStateShares) {
    std::vector<int> moved;
    int64_t bytes = 0;
    for (const int id : states) {
      if (static_cast<double>(bytes) >= share * static_cast<double>(all_bytes)) break;
      if (bytes + bytes_of(id) > host_bytes) continue;
      moved.push_back(id);
      bytes += bytes_of(id);
    }
    if (bytes <= std::exchange(before, std::max(before, bytes))) continue;
    changes.push_back(
        {.name = kHostStateLever,
         .what = "keeps the optimizer's state in host memory, where its update reads and writes it",
         .apply = [moved](Graph& graph, std::span<const Targets>) { put_on_host(graph, moved); },
         .amount = static_cast<int>(moved.size()),
         .keeps_nodes = true});
  }
  return changes;
}

Program changed(const Program& program, const Lever& change) {
  std::shared_ptr<Graph> graph = program.graph->copy();
  change.apply(*graph, program.targets);
  Program result = with_graph(program, std::move(graph));
  // Parts have no parts.
  if (change.name == kSplitBatchLever || change.name == kSplitLossLever) result.part = {};
  if (!result.part) return result;
  result.part = [part_of = program.part, change,
                 targets = program.targets](int64_t parts) -> std::shared_ptr<const Graph> {
    const std::shared_ptr<const Graph> part = part_of(parts);
    if (part == nullptr) return nullptr;
    std::shared_ptr<Graph> copy = part->copy();
    change.apply(*copy, targets);
    return copy;
  };
  return result;
}

int64_t host_variable_bytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const int id : graph.variables()) {
    if (graph.value(id).device == kHostPlace) bytes += Variables::block_bytes(graph.value(id));
  }
  return bytes;
}

}  // namespace headroom
