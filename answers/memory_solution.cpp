#include "answers/memory_solution.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"

namespace headroom {
namespace {

MemoryFacts facts_of_budget(int64_t memory_bytes) {
  MemoryFacts facts;
  facts.limit = memory_bytes;
  facts.limit_is_on_process = true;
  return facts;
}

}  // namespace

MemoryTooSmall::MemoryTooSmall(int64_t memory_bytes, int64_t least_bytes)
    : OutOfMemory(facts_of_budget(memory_bytes)),
      least_bytes_(least_bytes),
      text_(least_bytes > 0
                ? fmt::format("{} is too small for every plan that was found; the minimum: --memory {}",
                              format_bytes(memory_bytes), exact_size(least_bytes))
                : fmt::format("{} is too small for every plan, and so is all of the device",
                              format_bytes(memory_bytes))) {}

void apply(const MemorySolution& solution, Graph& graph, std::span<const Targets> targets) {
  for (const Lever& lever : solution.levers) {
    if (lever.apply) lever.apply(graph, targets);
  }
  apply(solution.schedule, graph);
}

int amount_of(const MemorySolution& solution, std::string_view name) {
  for (const Lever& lever : solution.levers) {
    if (lever.name == name) return lever.amount;
  }
  return 0;
}

bool keeps_bits(const MemorySolution& solution) {
  return std::ranges::all_of(solution.levers, [](const Lever& lever) { return lever.bits.empty(); });
}

std::string describe_parts(const MemorySolution& solution) {
  std::string text;
  for (const Lever& lever : solution.levers) {
    if (!lever.text.empty()) text += (text.empty() ? "" : " and ") + lever.text;
  }
  return text;
}

std::string describe_bits(const MemorySolution& solution) {
  std::string text;
  for (const Lever& lever : solution.levers) {
    if (!lever.bits.empty()) text += (text.empty() ? "" : "; ") + lever.bits;
  }
  return text.empty() ? "weights keep the same bits" : text;
}

}  // namespace headroom
