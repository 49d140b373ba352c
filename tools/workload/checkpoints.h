// Modules of a PyTorch program that run again in the backward pass: in which order to choose them, those
// first that save most memory for their time, and traces of the program with them. Knows no device and no
// budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/trace/program.h"
#include "trace/trace.h"

namespace headroom {

// Returns the modules that keep much for the backward pass, in the order in which to make them checkpoints:
// those first that save most at the trace's peak for their time in a step. Omits modules that only hold a
// list of such modules, and the one that keeps most of all: running it again needs as much memory as keeping
// it.
std::vector<std::string> checkpoint_order(const Trace& trace, const std::vector<ProgramModule>& modules);

// The first `count` of them, without those inside of others.
std::vector<std::string> first_checkpoints(std::span<const std::string> order, size_t count);

// Returns the modules of a recording, whose times are unknown: they are in proportion to the bytes that each
// allocates in the forward pass.
std::vector<ProgramModule> recorded_modules(const Trace& trace);

// Returns the trace as it would be if each of these modules were a checkpoint of its own
// (torch.utils.checkpoint): the blocks that its forward pass keeps for the backward pass are freed at the end
// of the forward pass and allocated again before the backward pass frees the first of them. Its result stays,
// which is its last block except for blocks that are kLeastResult times smaller than its largest.
inline constexpr int64_t kLeastResult = 16;
Trace with_checkpoints(const Trace& trace, const std::vector<std::string>& modules);

// The last number that fits on the way from one that does to one that does not.
int64_t edge_between(int64_t fitting, int64_t failing, const std::function<bool(int64_t number)>& fits);

// Traces a program again with these modules as checkpoints; nothing where that is not possible.
using TraceCheckpoints = std::function<std::optional<Trace>(const std::vector<std::string>& modules)>;

// For the model of that class (TracedProgram::model), with that batch (none: the program's own).
TraceCheckpoints trace_checkpoints(std::shared_ptr<ProgramTracer> tracer, std::optional<int64_t> batch,
                                   std::string model);
// Returns checkpoints for a program that is not loaded yet; it is loaded when a trace is first requested.
TraceCheckpoints trace_checkpoints(const ProgramRequest& request);

// "transformer.h.*.mlp" of "transformer.h.3.mlp", and 3; the path itself and -1 without a number in it.
std::pair<std::string, int64_t> pattern_of(std::string_view path);

}  // namespace headroom
