// The program that one or several sessions run over one graph, and its plans. Knows no device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/plan/plan.h"

namespace headroom {

struct MemorySolution;  // memory_solution.h

// The work of a replica, or of a single program: a session for each of the targets, in that order, over the
// same variables.
struct Program {
  std::shared_ptr<const Graph> graph;  // placed
  std::vector<Targets> targets;
  std::shared_ptr<const MemorySolution> memory = {};  // how it fits a budget; null without one
  // The graph of the same program for 1 / parts of its batch; null where there is none. Empty for a program
  // whose batch must stay whole.
  std::function<std::shared_ptr<const Graph>(int64_t parts)> part = {};
  std::shared_ptr<const std::vector<Plan>> plans = {};  // by target; null until it is planned
};

// Returns the same program of a graph whose nodes and values have the same ids, without plans.
Program with_graph(const Program& program, std::shared_ptr<const Graph> graph);

// Returns the workspaces of the kernels of the CPU and of simulated GPUs, by node, as make_plan takes them.
std::vector<int64_t> workspaces_of_cpu_kernels(const Graph& graph);

// Plans one program for kernels with these workspaces, by node. Throws as make_plan does.
Program planned(Program program, PlanMode mode, std::span<const int64_t> workspace_bytes);
// Plans all replicas, given by rank, for the kernels of the CPU; replicas of one graph share its plans.
// Throws as make_plan does.
std::vector<Program> planned(std::vector<Program> ranks, PlanMode mode);

}  // namespace headroom
