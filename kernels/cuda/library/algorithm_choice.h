// Chooses among the algorithms that a library offers for one problem: each is timed once on this machine, and
// the costs are kept on disk. Knows no library.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/library/algorithm_cache.h"

namespace headroom::cuda {

struct AlgorithmCandidate {
  AlgorithmChoice choice;  // its time is not known yet
  // Computes the problem on operands that start at `operands`.
  std::function<void(std::byte* operands, void* workspace, cudaStream_t stream)> run;
};

// A library's answers for one problem.
struct AlgorithmSearch {
  std::string problem;  // names it, with everything that algorithms depend on but the machine
  int64_t operand_bytes = 0;
  // The algorithms that need no more than the workspace limit, the library's best guess first. Stops when
  // there are `enough`: making one ready takes time.
  std::function<std::vector<AlgorithmCandidate>(size_t enough)> candidates;
  // Makes the algorithm of a choice the one to run. False when the library does not take it: it was kept on
  // disk and may be anything.
  std::function<bool(const AlgorithmChoice&)> use;
};

// Uses the fastest algorithm within request.settings.workspace_limit_bytes and returns it. If there is no
// device memory to time algorithms in, uses the library's best guess. Throws LibraryError naming the problem
// if there is no algorithm.
AlgorithmChoice choose_algorithm(const Request& request, const AlgorithmSearch& search);

}  // namespace headroom::cuda
