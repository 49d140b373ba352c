#include "tools/workload/program_checkpoints.h"

#include <utility>
#include <vector>

#include "base/errors.h"

namespace headroom {

TraceCheckpoints trace_checkpoints(std::shared_ptr<ProgramTracer> tracer, std::optional<int64_t> batch,
                                   std::string model) {
  return [tracer = std::move(tracer), batch,
          model = std::move(model)](const std::vector<std::string>& modules) -> std::optional<Trace> {
    ProgramChanges changes;
    changes.checkpoints = modules;
    changes.model = model;
    try {
      return tracer->trace(batch, changes).trace;
    } catch (const InvalidArgument&) {  // such as a list of modules, which has no forward pass
      return std::nullopt;
    }
  };
}

TraceCheckpoints trace_checkpoints(const ProgramRequest& request) {
  const auto loaded = std::make_shared<TraceCheckpoints>();
  return [loaded, request](const std::vector<std::string>& modules) {
    if (!*loaded) {
      auto tracer = std::make_shared<ProgramTracer>(request);
      std::string model = tracer->trace(request.batch).model;
      *loaded = trace_checkpoints(std::move(tracer), request.batch, std::move(model));
    }
    return (*loaded)(modules);
  };
}

}  // namespace headroom
