// Which modules of a PyTorch program to run again in the backward pass, those first that save most memory for
// their time. Knows no budget and no tracer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/trace/program.h"
#include "trace/trace.h"

namespace headroom {

// A module, and what a checkpoint of it saves at the trace's peak and costs in a step.
struct CheckpointCandidate {
  std::string path;
  int64_t saved_bytes = 0;
  double us = 0;
};

// The modules that keep much for the backward pass, in the order in which to make them checkpoints. Those
// that only hold a list of such modules are left out, and so is what keeps most of all: running it again
// needs as much memory as keeping it.
std::vector<CheckpointCandidate> checkpoint_order(const Trace& trace,
                                                  const std::vector<ProgramModule>& modules);

// The first `count` of them, without those inside of others.
std::vector<std::string> first_checkpoints(std::span<const CheckpointCandidate> order, size_t count);

// The modules of a recording, for which nobody knows times: they are in proportion to the bytes that each
// allocates in the forward pass.
std::vector<ProgramModule> recorded_modules(const Trace& trace);

// "transformer.h.*.mlp" of "transformer.h.3.mlp", and 3; the path itself and -1 without a number in it.
struct ModulePattern {
  std::string text;
  int64_t number = -1;
};
ModulePattern pattern_of(std::string_view path);

}  // namespace headroom
