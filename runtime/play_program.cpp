#include "runtime/play_program.h"

#include <vector>

#include "runtime/core/errors.h"
#include "runtime/core/sim/simulated_gpu.h"
#include "runtime/kernels.h"
#include "runtime/predict_peak.h"
#include "runtime/start_op.h"

namespace headroom {
namespace {

// Strategies on a CPU take from the host's allocator, which hands out pages.
constexpr int64_t kHostPage = 4096;

// The strategy on the device that the options name.
StrategySettings played_strategy(const RuntimeOptions& options) {
  StrategySettings settings = options.strategy_settings();
  settings.record_path.clear();  // what is only played is not what happened
  if (options.virtual_devices.empty()) return settings;
  return strategy_on(find_devices(options), default_device(options), settings);
}

// Calls `play`, whose failures are the answer; a setting that contradicts itself is one, too.
template <typename F>
Attempt attempt(F play) {
  Attempt result;
  FailureWitness witness;
  try {
    result.fits = play(witness);
  } catch (const OutOfMemory& error) {
    result.error = error.what();
  } catch (const LibraryError& error) {
    result.error = error.what();
  } catch (const DeviceError& error) {
    result.error = error.what();
  } catch (const InvalidArgument& error) {
    result.error = error.what();
  }
  result.failure = witness.failure();
  return result;
}

}  // namespace

DeviceProfile twin_of(const RuntimeOptions& options, const MemoryInfo& info) {
  if (std::optional<DeviceProfile> simulated = simulated_profile(options)) {
    if (info.total > 0) simulated->others_bytes = info.others;  // of the GPU in use, where several differ
    return *simulated;
  }
  DeviceProfile profile = find_profile("h200");
  profile.total_bytes = info.total;
  profile.others_bytes = info.others;
  if (cuda_ordinal(options.device)) return profile;
  profile.context_bytes = 0;
  profile.blas = profile.dnn = {};
  profile.granularity_bytes = kHostPage;
  return profile;
}

Attempt play_program(const Graph& graph, std::span<const Targets> targets, const Setting& setting) {
  return attempt([&](FailureWitness& witness) {
    SimulatedGpu device(setting.device, 0, Backing::kNone);
    StrategySettings strategy = played_strategy(setting.options);
    if (setting.options.libraries_first) strategy.reserve_bytes = start_library_handles(device);
    const std::unique_ptr<Allocator> allocator = make_allocator(strategy, device);
    witness.watch(*allocator);
    const Kernels kernels(graph, device, *allocator);
    std::vector<Plan> plans;
    for (const Targets& target : targets) {
      plans.push_back(make_plan(graph, target, setting.options.plan_mode(), kernels.workspace_bytes()));
    }
    std::vector<const Plan*> pointers;
    for (const Plan& plan : plans) pointers.push_back(&plan);
    predict_peak(graph, pointers, device, *allocator);
    return true;
  });
}

OutOfMemoryReport explain_out_of_memory(const OutOfMemory& error, const Graph& graph,
                                        std::span<const Targets> targets, const RuntimeOptions& options,
                                        const MemoryInfo& info) {
  const Setting present{.device = twin_of(options, info), .options = options, .has_plan = true};
  return explain_out_of_memory(error.facts(), present,
                               [&](const Setting& setting) { return play_program(graph, targets, setting); });
}

}  // namespace headroom
