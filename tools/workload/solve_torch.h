// Finds changes with which a PyTorch program trains in a budget of memory, at the least cost in time. Each
// try is a trace of the program with the changes. Knows no command line and no tracer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "answers/predict.h"
#include "runtime/app/options.h"
#include "runtime/app/setup.h"
#include "tools/trace/program.h"

namespace headroom {

// A try: the changes, and what the program takes with them.
struct ProgramTrial {
  ProgramChanges changes = {};
  bool has_expandable_segments = false;  // PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
  Prediction prediction = {};            // on a device with that budget
  int64_t least_memory_bytes = 0;        // the least budget in which it fits; 0: none
  double us = 0;                         // time of a step
  std::string error = {};                // reason that it cannot be traced; nothing else is known then

  bool fits() const { return error.empty() && prediction.fits; }
};

struct ProgramSolution {
  ProgramTrial plain = {};                 // the program as it is
  ProgramTrial chosen = {};                // the fastest that keeps the budget, or what takes least
  std::optional<ProgramTrial> split = {};  // faster than that, with parts of the batch
  std::string model = {}, name = {};       // the class of its largest model, and its name in the program
  bool normalizes_batches = false;
  std::vector<ProgramTrial> trials = {};

  bool fits() const { return chosen.fits(); }
};

// The program with changes; throws InvalidArgument where it cannot be traced with them.
using TraceProgram =
    std::function<TracedProgram(std::optional<int64_t> batch, const ProgramChanges& changes)>;

// `setup` is that of a device with the budget. Of the program's batch parts may be tried as `split` says,
// unless it is unknown (nothing). `autocast`: a type of 16 bits to try, or nothing. Throws as `trace` does
// for the program without changes.
ProgramSolution solve_torch(const TraceProgram& trace, const RunSetup& setup, SplitBatch split,
                            std::optional<int64_t> batch, const std::string& autocast = {});
// Solves for a recording of a run, of which only checkpoints can be tried.
ProgramSolution solve_recording(const TraceProgram& trace, const RunSetup& setup);

}  // namespace headroom
