#include "answers/play_trace.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "allocators/replay/replay.h"
#include "base/errors.h"
#include "device/host/simulated_gpu.h"
#include "runtime/session/start_op.h"

namespace headroom {
namespace {

// Calls play(settings), which returns how it went, and watches the allocator if `explains`.
template <typename F>
Attempt attempt_to_play(const Trace& trace, const RunSetup& setup, bool explains, const F& play) {
  Attempt result;
  FailureObserver observer;
  try {
    StrategySettings settings = setup.options.strategy_settings();
    if (!setup.gpus.logical.empty()) {
      settings = strategy_on(setup.gpus, default_device(setup.options), settings);
    }
    const int64_t most = std::min(setup.device.total_bytes, settings.limit_bytes.value_or(INT64_MAX));
    if (!explains && most < trace.peak_bytes) return result;  // no strategy fits
    settings.record_path.clear();                             // a trial records nothing
    settings = prepared_for(trace, std::move(settings));
    if (explains) {
      settings.make = [&observer, make = settings.make](const StrategySettings& asked, Device& device) {
        StrategySettings plain = asked;
        plain.make = make;
        plain.failing_calls.reset();  // `device` has them already
        std::unique_ptr<Allocator> allocator = make_allocator(plain, device);
        observer.watch(*allocator);
        return allocator;
      };
    }
    const ReplayResult played = play(settings);
    result.fits = played.fits();
    result.used_bytes = played.fits() ? played.used_bytes : 0;
    if (played.fits() && !depends_on_total(settings)) result.enough_total = played.enough_total;
    result.work = played.failed_event.value_or(static_cast<int64_t>(trace.events.size()));
  } catch (const InvalidArgument& error) {  // a limit above this device's total
    result.error = error.what();
  } catch (const DeviceError& error) {  // no room for the context
    result.error = error.what();
  } catch (const LibraryError& error) {  // started first
    result.error = error.what();
  }
  result.failure = observer.failure();
  return result;
}

}  // namespace

Attempt play_trace(const Trace& trace, const RunSetup& setup, bool explains) {
  return attempt_to_play(trace, setup, explains, [&](const StrategySettings& settings) {
    return replay_at(trace, settings, setup.device, setup.device.total_bytes, 1, ReplayEnd::kLastAllocation);
  });
}

Attempt play_trace_on_device(const Trace& trace, const RunSetup& setup, int64_t passes, bool explains) {
  return attempt_to_play(trace, setup, explains, [&](const StrategySettings& settings) {
    SimulatedGpu device(setup.device, 0, Backing::kNone);
    StrategySettings strategy = settings;
    if (setup.options.libraries_first) strategy.reserve_bytes = start_libraries_with_kernels(device);
    ReplayResult played = replay(trace, strategy, device, passes, ReplayEnd::kLastAllocation);
    played.enough_total = 0;  // what a pool leaves to libraries depends on the total
    return played;
  });
}

}  // namespace headroom
