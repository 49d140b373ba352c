// Plays programs on the twins of their devices: whether they fit in a setup, and what they take. Computes
// nothing and touches no byte.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "answers/out_of_memory.h"
#include "answers/predict_peak.h"
#include "runtime/app/run_result.h"
#include "runtime/app/setup.h"
#include "runtime/plan/plan.h"

namespace headroom {

struct MemorySolution;  // solve_program.h

// What a replica, or a program alone, runs: a session for each of the targets, in that order, over the same
// variables.
struct Program {
  std::shared_ptr<const Graph> graph;  // placed
  std::vector<Targets> targets;
  std::shared_ptr<const MemorySolution> memory = {};  // how it keeps to a budget; null without one
  // The graph of the same program for 1 / parts of its batch; null where there is none. Empty for a program
  // whose batch must stay whole.
  std::function<std::shared_ptr<const Graph>(int64_t parts)> part = {};
};

// The same program of a graph whose nodes and values have the same ids.
Program with_graph(const Program& program, std::shared_ptr<const Graph> graph);

// The workspaces of the kernels of the CPU and of simulated GPUs, by node, as make_plan takes them.
std::vector<int64_t> workspaces_of_cpu_kernels(const Graph& graph);

// A program with its plans.
struct PlannedProgram {
  Program program;
  std::vector<Plan> plans;  // by target
};
// Plans one program for kernels with these workspaces, by node. Throws as make_plan does.
std::shared_ptr<const PlannedProgram> plan_program(const Program& program, PlanMode mode,
                                                   std::span<const int64_t> workspace_bytes);
// Plans all replicas, given by rank, for the kernels of the CPU; replicas of one graph share its plans.
// Throws as make_plan does.
std::vector<std::shared_ptr<const PlannedProgram>> plan_programs(std::span<const Program> ranks,
                                                                 PlanMode mode);

// The part of a replica that is played.
struct Played {
  const Graph* graph = nullptr;
  std::vector<const Plan*> plans;
  ReplicaDevices devices;
};
// Replicas on the first GPUs, as many each as the options place them on; a program alone on the device that
// the options name.
std::vector<Played> to_play(std::span<const std::shared_ptr<const PlannedProgram>> ranks,
                            const RuntimeOptions& options);

struct DevicePeak {
  std::string name;  // "/device:GPU:1"
  PeakPrediction peak;
  int64_t library_bytes = 0;  // handles and kernels on its GPU
};
struct PlayedAttempt : Attempt {
  std::vector<DevicePeak> devices;  // of each replica in turn; empty unless it fits
  int64_t lacking_bytes = 0;        // for the call that failed
  double fragmentation = 0;         // of the first device when most is live, or of the device without room
};

// Plays all sessions of all replicas in turn, until no peak rises. If it `explains`, it also lists the live
// blocks at a failure, which takes time. Throws InvalidArgument for a setup that contradicts itself.
PlayedAttempt play(std::span<const Played> replicas, const RunSetup& setup, bool explains);

// Whether a program that fitted takes the same memory in `smaller`, the same setup with no larger total of
// the GPUs, so that it need not be played there: the devices grant all that was asked for, and no strategy
// keeps to the total. False where that is unknown.
bool would_play_alike(const PlayedAttempt& fitted, const RunSetup& smaller);

// Makes the programs of all replicas for a setup's batch.
using MakePrograms = std::function<std::vector<Program>(const RunSetup&)>;

// Why a run was out of memory, and the smallest change with which the same programs fit, played on a twin;
// nothing when the run ended otherwise, or was refused before it asked a device (MemoryTooSmall). A setup
// that refuses the programs counts as a failure.
std::optional<OutOfMemoryReport> explain_run(const RunResult& result, const RunSetup& present,
                                             const MakePrograms& make);
// The same for your own graph, when its session threw: `present` is Runtime::setup().
OutOfMemoryReport explain_out_of_memory(const OutOfMemory& error, const Graph& graph,
                                        std::span<const Targets> targets, RunSetup present);

}  // namespace headroom
