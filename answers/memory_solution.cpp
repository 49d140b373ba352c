#include "answers/memory_solution.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "runtime/graph/host_state.h"
#include "runtime/plan/compress_norms.h"
#include "runtime/plan/split_batch.h"
#include "runtime/plan/split_loss.h"

namespace headroom {
namespace {

MemoryFacts facts_of_budget(int64_t memory_bytes) {
  MemoryFacts facts;
  facts.limit = memory_bytes;
  facts.limit_is_on_process = true;
  return facts;
}

}  // namespace

std::vector<Value> all_fetches(std::span<const Targets> targets) {
  std::vector<Value> fetches;
  for (const Targets& some : targets) fetches.insert(fetches.end(), some.fetches.begin(), some.fetches.end());
  return fetches;
}

MemoryTooSmall::MemoryTooSmall(int64_t memory_bytes, int64_t least_bytes)
    : OutOfMemory(facts_of_budget(memory_bytes)),
      least_bytes_(least_bytes),
      text_(least_bytes > 0
                ? fmt::format("{} is too small for every plan that was found; the minimum: --memory {}",
                              format_bytes(memory_bytes), exact_size(least_bytes))
                : fmt::format("{} is too small for every plan, and so is all of the device",
                              format_bytes(memory_bytes))) {}

void apply(const MemorySolution& solution, Graph& graph, std::span<const Targets> targets) {
  if (solution.compresses_norms) compress_norms(graph, all_fetches(targets));
  if (solution.parts > 1) split_batch(graph, *solution.part, solution.parts, targets);
  if (solution.loss_parts > 1) split_loss(graph, solution.loss_parts, all_fetches(targets));
  put_on_host(graph, solution.host_states);
  apply(solution.schedule, graph);
}

std::string describe_parts(const MemorySolution& solution) {
  std::string text;
  if (solution.loss_parts > 1) text = fmt::format("with the loss in {} parts", solution.loss_parts);
  if (solution.parts > 1) text = fmt::format("in {} parts", solution.parts);
  if (!solution.compresses_norms) return text;
  return text.empty() ? "with norms in 8 bits" : text + " and norms in 8 bits";
}

std::string describe_bits(const MemorySolution& solution) {
  if (keeps_bits(solution)) return "weights keep the same bits";
  std::string text;
  if (solution.compresses_norms) text = "gradients of batch norms read 8 bits";
  const std::string_view and_then = text.empty() ? "" : "; ";
  if (solution.loss_parts > 1) {
    text += fmt::format("{}the loss is computed in {} parts: sums round in another order", and_then,
                        solution.loss_parts);
  } else if (solution.parts > 1) {
    text += fmt::format(
        "{}the batch runs in {} parts: sums round in another order{}", and_then, solution.parts,
        solution.normalises_parts ? ", and each batch normalisation takes its statistics from one part" : "");
  }
  return text;
}

}  // namespace headroom
