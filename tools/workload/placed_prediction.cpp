#include "tools/workload/placed_prediction.h"

#include <algorithm>

#include "runtime/core/bytes.h"
#include "runtime/core/errors.h"
#include "runtime/placement.h"
#include "runtime/runtime.h"
#include "tools/workload/prediction.h"

namespace headroom {
namespace {

// What the pure figures of graph and plans are, by device.
std::vector<DevicePrediction> needs_of(const Graph& graph, const std::vector<Plan>& plans,
                                       const DeviceName& default_device) {
  std::vector<DevicePrediction> devices;
  const std::vector<std::string> names = devices_of(graph);
  for (size_t i = 0; i < names.size(); ++i) {
    DevicePrediction device{names[i].empty() ? default_device.text() : names[i]};
    for (int id : graph.variables()) {
      if (graph.value(id).device == names[i])
        device.variable_bytes += round_up(graph.value(id).spec.bytes(), Allocator::kAlignment);
    }
    for (const Plan& plan : plans)
      device.step_bytes = std::max(device.step_bytes, plan.devices[i].peak_bytes);
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace

PlacedPrediction predict_placed(const Program& program, const WorkloadOptions& options) {
  if (!simulated_profile(options.runtime)) {
    throw InvalidArgument(
        "a net on several devices is predicted for a simulated machine, such as sim:four-2080ti");
  }
  const Graph& graph = *program.graph;
  const std::vector<int64_t> workspace_bytes = workspaces_of_cpu_kernels(graph);
  std::vector<Plan> plans;
  std::vector<const Plan*> pointers;
  for (const Targets& targets : program.targets) {
    plans.push_back(make_plan(graph, targets, options.runtime.plan_mode(), workspace_bytes));
  }
  for (const Plan& plan : plans) pointers.push_back(&plan);

  PlacedPrediction prediction;
  prediction.devices = needs_of(graph, plans, default_device(options.runtime));
  for (const Step& step : plans.front().steps) {
    if (step.kind != StepKind::kRun || !std::holds_alternative<CopyToDevice>(graph.node(step.id).op))
      continue;
    ++prediction.copies;
    prediction.copied_bytes += graph.value(graph.node(step.id).outputs[0]).spec.bytes();
  }

  RuntimeOptions unrecorded = options.runtime;  // what is only played is not what happened
  unrecorded.record.clear();
  try {
    Runtime twin(unrecorded);
    std::vector<PlacedDevice> devices;
    for (const DevicePrediction& device : prediction.devices) {
      devices.push_back({device.name, &twin.device(device.name), &twin.allocator(device.name)});
    }
    const std::vector<PeakPrediction> peaks = predict_peaks(graph, pointers, DeviceSet(std::move(devices)));
    for (size_t i = 0; i < peaks.size(); ++i) prediction.devices[i].peak = peaks[i];
    prediction.fits = true;
  } catch (const OutOfMemory& error) {
    prediction.reason = error.what();
  } catch (const LibraryError& error) {
    prediction.reason = error.what();
  } catch (const DeviceError& error) {
    prediction.reason = error.what();
  }
  return prediction;
}

}  // namespace headroom
