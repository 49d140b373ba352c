// One step of a net or a model as a graph, with numbers that stand for its data. Knows no device and no
// command line.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/session/session.h"
#include "tools/workload/workload.h"

namespace headroom {

struct WorkloadStep {
  std::shared_ptr<Graph> graph;
  Targets targets;
  std::vector<Value> parameters;
  std::function<void(Session&)> feed;  // every step sees the same numbers, drawn or of the options' data
  // The values that the last step computed, by the names of the file; null for a training step.
  std::function<std::vector<NamedTensor>(Session&)> outputs = {};
};

// A training step of a replica of the model or the net of the zoo that the options name, or the forward pass
// of the model; not placed. Throws InvalidArgument as make_programs() does.
WorkloadStep make_workload_step(const WorkloadOptions& options, int rank);

}  // namespace headroom
