// Plays the traces of a program to memory strategies: whether they fit, in how much memory, and how fast.
// Touches none of the bytes, so simulated memory needs no backing. Knows no graph.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocators/failure_observer.h"
#include "allocators/strategies/strategy.h"
#include "answers/workload.h"
#include "device/device.h"
#include "runtime/app/setup.h"

namespace headroom {

// What a program took of one device.
struct PlayedDevice {
  std::string name = {};        // "/device:GPU:1"
  Statistics statistics = {};   // at the end or the failure, with blocks that the trace never frees still live
  double fragmentation = 0;    // of Statistics, when most was live in the last pass, or at the failure
  // The driver's peak of the process on the GPU, which virtual devices share: context and libraries, too.
  int64_t process_bytes = 0;
  int64_t context_bytes = 0, library_bytes = 0;  // of it; handles and kernels
};

struct Played {
  bool fits = false;
  std::string error = {};                     // one line
  std::optional<int64_t> failed_event = {};   // without room, from 1 on through all passes; 0: the pool itself
  std::optional<MemoryFacts> facts = {};      // of that request
  std::optional<FailedRequest> failure = {};  // with what lived there, if it was asked for
  std::vector<PlayedDevice> devices = {};     // as traced
  int64_t used_bytes = 0;                     // of the GPU at its peak, by anybody
  // The least total of the device with which every request would have found room, where it fits and the
  // strategy does not depend on the total; 0: unknown.
  int64_t enough_total = 0;
  int64_t lacking_bytes = 0;  // for the call that failed, at least 1
  int64_t work = 0;           // events that were played
  double driver_time_us = 0;  // of driver calls, on the device's clock
  double ns_per_call = 0;     // host time in the fastest complete pass; 0 if none

  const PlayedDevice& front() const { return devices.front(); }
};

struct PlayOptions {
  bool explains = false;  // also what lived at a failure, which takes memory and time
  int64_t passes = 1;     // over a trace that does not repeat by itself; what it never frees is freed between
  // The last pass goes to the last event. What follows the last allocation finds no lack of room and raises
  // no peak.
  bool to_last_event = false;
};

// Plays a program on a twin of its machine. What repeats is played until a round raises no peak. Of a trace
// that starts no library, context and libraries of the setup have their memory from the start. A setup that
// refuses the program, a failing library and lack of memory are results. Throws InvalidArgument for a setup
// that contradicts itself.
Played play(const Traced& program, const RunSetup& setup, const PlayOptions& options = {});
// Plays a trace on a device that is there. Throws what Device::initialise and make_allocator throw, except
// OutOfMemory.
Played play(const Trace& trace, const StrategySettings& strategy, Device& device,
            const PlayOptions& options = {});

// Whether a program that fitted takes the same memory in `smaller`, the same setup with no larger total of
// the GPUs, so that it need not be played there: the devices grant all that was asked for, and no strategy
// keeps to the total. False where that is unknown.
bool would_play_alike(const Traced& program, const Played& fitted, const RunSetup& smaller);

// The strategy of a setup as it acts where context and libraries have their memory already: with a limit on
// its pool alone, and without a reserve.
StrategySettings strategy_beside_process(const RunSetup& setup);
// What the strategy of a program that starts no library may take of its device: whole pages of what others,
// context and libraries leave.
int64_t capacity_bytes(const RunSetup& setup);
// A device with that capacity for a strategy alone: no context, no library, no other process.
RunSetup setup_of_capacity(const DeviceProfile& profile, StrategySettings strategy, int64_t capacity_bytes);

// What a strategy holds after that event (counted from 1) of a trace that starts no library, or at an earlier
// event that found no room. Blocks have the sizes, names and streams of the trace. Event 0 and no segments if
// the strategy could not start.
struct PlayedSnapshot {
  Snapshot snapshot;
  int64_t event = 0;
  bool out_of_memory = false;
};
PlayedSnapshot snapshot_after(const Trace& trace, const RunSetup& setup, int64_t event);

}  // namespace headroom
