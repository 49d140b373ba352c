#include "runtime/play_trace.h"

#include <memory>

#include "allocators/replay.h"
#include "runtime/core/errors.h"

namespace headroom {

Attempt play_trace(const Trace& trace, const Setting& setting) {
  Attempt result;
  FailureWitness witness;
  try {
    StrategySettings settings = setting.options.strategy_settings();
    settings.record_path.clear();  // what is only tried is not what was asked for
    settings.make = [&witness](const StrategySettings& asked, Device& device) {
      StrategySettings plain = asked;
      plain.make = nullptr;
      plain.failing_calls.reset();  // of the device that is given here
      std::unique_ptr<Allocator> allocator = make_allocator(plain, device);
      witness.watch(*allocator);
      return allocator;
    };
    result.fits = replay_at(trace, settings, setting.device, setting.device.total_bytes).fits();
  } catch (const InvalidArgument& error) {  // a limit above this device's total
    result.error = error.what();
  }
  result.failure = witness.failure();
  return result;
}

}  // namespace headroom
