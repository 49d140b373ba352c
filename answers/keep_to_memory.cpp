#include "answers/keep_to_memory.h"

#include <cstddef>
#include <memory>
#include <utility>

#include "answers/solve_program.h"

namespace headroom {

std::vector<Program> keep_to_memory(std::vector<Program> programs, const RuntimeOptions& options) {
  if (!options.memory_bytes) return programs;
  const RunSetup setup = setup_of(options);
  const Graph* before = nullptr;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    const Graph* const graph = programs[rank].graph.get();
    if (rank > 0 && graph == before) {
      programs[rank] = programs[rank - 1];
      continue;
    }
    before = graph;
    auto solution = std::make_shared<const MemorySolution>(
        ProgramSolver(programs[rank], setup, {}, static_cast<int>(programs.size()))
            .solve(*options.memory_bytes));
    std::shared_ptr<Graph> rewritten_graph = programs[rank].graph->copy();
    apply(*solution, *rewritten_graph, programs[rank].targets);
    programs[rank] = with_graph(programs[rank], std::move(rewritten_graph));
    programs[rank].memory = std::move(solution);
  }
  return programs;
}

std::optional<MemoryTooSmall> why_not_kept(const std::vector<Program>& programs) {
  for (const Program& program : programs) {
    if (program.memory == nullptr || program.memory->keeps) continue;
    return MemoryTooSmall(program.memory->memory_bytes, program.memory->least_memory_bytes);
  }
  return std::nullopt;
}

void require_kept(const std::vector<Program>& programs) {
  if (const std::optional<MemoryTooSmall> refusal = why_not_kept(programs)) throw MemoryTooSmall(*refusal);
}

}  // namespace headroom
