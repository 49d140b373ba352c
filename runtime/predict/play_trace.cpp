#include "runtime/predict/play_trace.h"

#include <memory>

#include "allocators/replay/replay.h"
#include "runtime/base/errors.h"
#include "runtime/device/host/simulated_gpu.h"

namespace headroom {
namespace {

// Calls play(settings), which returns whether the trace fits, and watches the allocator.
template <typename F>
Attempt attempt_to_play(const RunSetup& setup, const F& play) {
  Attempt result;
  FailureObserver observer;
  try {
    StrategySettings settings = setup.options.strategy_settings();
    if (!setup.gpus.logical.empty()) {
      settings = strategy_on(setup.gpus, default_device(setup.options), settings);
    }
    settings.record_path.clear();  // a trial records nothing
    settings.make = [&observer](const StrategySettings& asked, Device& device) {
      StrategySettings plain = asked;
      plain.make = nullptr;
      plain.failing_calls.reset();  // `device` has them already
      std::unique_ptr<Allocator> allocator = make_allocator(plain, device);
      observer.watch(*allocator);
      return allocator;
    };
    result.fits = play(settings);
  } catch (const InvalidArgument& error) {  // a limit above this device's total
    result.error = error.what();
  } catch (const DeviceError& error) {  // no room for the context
    result.error = error.what();
  }
  result.failure = observer.failure();
  return result;
}

}  // namespace

Attempt play_trace(const Trace& trace, const RunSetup& setup) {
  return attempt_to_play(setup, [&](const StrategySettings& settings) {
    return replay_at(trace, settings, setup.device, setup.device.total_bytes).fits();
  });
}

Attempt play_trace_on_device(const Trace& trace, const RunSetup& setup, int64_t passes) {
  return attempt_to_play(setup, [&](const StrategySettings& settings) {
    SimulatedGpu device(setup.device, 0, Backing::kNone);
    return replay(trace, settings, device, passes).fits();
  });
}

}  // namespace headroom
