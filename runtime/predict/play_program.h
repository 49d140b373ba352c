// Plays programs on the simulated twin of their machine: how it goes there under a setup. Nothing is
// computed and no byte is touched.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/app/run_result.h"
#include "runtime/plan/plan.h"
#include "runtime/predict/out_of_memory.h"
#include "runtime/predict/predict_peak.h"

namespace headroom {

// What a replica, or a program alone, runs: a session for each of the targets, made in that order over the
// same variables.
struct Program {
  std::shared_ptr<const Graph> graph;  // placed
  std::vector<Targets> targets;
};

// What the kernels of the CPU and of simulated GPUs need, by node, as make_plan takes it.
std::vector<int64_t> workspaces_of_cpu_kernels(const Graph& graph);

// A program with its plans for those kernels.
struct PlannedProgram {
  Program program;
  std::vector<Plan> plans;  // by target
};
// Those of all replicas, by rank; replicas of one graph share its plans. Throws as make_plan does.
std::vector<std::shared_ptr<const PlannedProgram>> plan_programs(std::span<const Program> ranks,
                                                                 PlanMode mode);

// What is played of one replica.
struct Played {
  const Graph* graph = nullptr;
  std::vector<const Plan*> plans;
  std::string device;  // of nodes that name none: "/device:GPU:0"
};
// Replicas on the first GPUs, a program alone on the device that the options name.
std::vector<Played> to_play(std::span<const std::shared_ptr<const PlannedProgram>> ranks,
                            const RuntimeOptions& options);

struct DevicePeak {
  std::string name;  // "/device:GPU:1"
  PeakPrediction peak;
  int64_t library_bytes = 0;  // handles and kernels on its GPU
};
struct PlayedAttempt : Attempt {
  std::vector<DevicePeak> devices;  // of each replica in turn; none unless it fits
  int64_t lacking_bytes = 0;        // by the call that failed
  double fragmentation = 0;         // of the first device when most is live, or of the one that has no room
};

// All sessions of all replicas in turn, until no peak rises any more. What lived when it failed is noted only
// if it `explains`, which takes time. Throws InvalidArgument for a setup that contradicts itself.
PlayedAttempt play(std::span<const Played> replicas, const RunSetup& setup, bool explains);

// The programs of all replicas for a setup's batch.
using MakePrograms = std::function<std::vector<Program>(const RunSetup&)>;

// Why a run out of memory ended, and the smallest change with which the same programs fit, played on a twin;
// nothing where it did not end for lack of memory. Programs that are refused are a failure like others.
std::optional<OutOfMemoryReport> explain_run(const RunResult& result, const RunSetup& present,
                                             const MakePrograms& make);
// The same for a graph of one's own, when a session of it threw: `present` is what Runtime::setup() says.
OutOfMemoryReport explain_out_of_memory(const OutOfMemory& error, const Graph& graph,
                                        std::span<const Targets> targets, RunSetup present);

}  // namespace headroom
