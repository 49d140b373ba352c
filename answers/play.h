// Plays the traces of a program to memory strategies: whether they fit, in how much memory, and how fast.
// Touches none of the bytes, so simulated memory needs no backing. Knows no graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocators/failure_observer.h"
#include "allocators/snapshot.h"
#include "allocators/strategies/strategy.h"
#include "answers/workload.h"
#include "device/device.h"
#include "runtime/app/setup.h"

namespace headroom {

// Memory that a program took on one device.
struct PlayedDevice {
  std::string name = {};       // "/device:GPU:1"
  Statistics statistics = {};  // at the end or the failure, with blocks that the trace never frees still live
  double fragmentation = 0;  // from Statistics, at the peak of live bytes in the last pass, or at the failure
  // The driver's peak of the process on the GPU, which virtual devices share; includes context and libraries.
  int64_t process_bytes = 0;
  int64_t context_bytes = 0, library_bytes = 0;  // parts of process_bytes; libraries: handles and kernels
};

// The memory that a program takes on its machine under a strategy, as it was played there.
struct Prediction {
  bool fits = false;
  std::string reason = {};                   // why it does not fit, one line
  std::optional<int64_t> failed_event = {};  // without room, from 1 on through all passes; 0: the pool itself
  std::optional<MemoryFacts> facts = {};     // about that request
  std::optional<FailedRequest> failure = {};  // with what lived there, if it was asked for
  std::vector<PlayedDevice> devices = {};     // as traced
  // The blocks of the strategy where the play ended, if they were asked for and the strategy could start.
  // They have the sizes, names and streams of the trace.
  std::optional<Snapshot> snapshot = {};
  int64_t used_bytes = 0;  // peak of the GPU, including other processes
  // The least total of the device with which every request would have found room, where it fits and the
  // strategy does not depend on the total; 0: unknown.
  int64_t enough_total = 0;
  int64_t lacking_bytes = 0;   // for the call that failed, at least 1
  int64_t work = 0;            // events that were played
  double driver_time_us = 0;   // time of driver calls, on the device's clock
  double ns_per_call = 0;      // host time in the fastest complete pass; 0 if none
  bool total_is_most = false;  // replicas share a GPU, where their peaks may meet or not

  // Known of a prediction (predict.h), of whose devices the peaks are known only where it fits, or on the
  // smallest device on which it does.
  // By how much the memory of each device (or the limit, if that binds first) could shrink; if negative, it
  // lacks that much. Empty if it was not searched for, or if the program fits on no device.
  std::optional<int64_t> margin_bytes = {};
  // The process on the fullest device at its peak, as the driver sees it, and its parts; 0: unknown.
  int64_t total_bytes = 0, context_bytes = 0, library_bytes = 0;
  int64_t reserved_bytes = 0, allocated_bytes = 0, requested_bytes = 0;
  size_t fullest = 0;  // position of that device
  int64_t plays = 1;   // that it took

  const PlayedDevice& front() const { return devices.front(); }
};

struct PlayOptions {
  bool explains = false;  // also what lived at a failure, which takes memory and time
  int64_t passes = 1;  // passes over a trace that does not repeat by itself; blocks it never frees are freed
  // between passes
  // The last pass goes to the last event. By default it stops after the last allocation, because later events
  // can neither fail nor raise the peak.
  bool to_last_event = false;
  // Ends after so many events of a single trace, with a snapshot.
  std::optional<int64_t> snapshot_after = {};
};

// Plays a program on a simulated copy of its machine. A part that repeats is played until a round raises no
// peak. If a trace starts no library, context and libraries of the setup take their memory before it starts.
// A setup that refuses the program, a failing library and lack of memory are results. Throws InvalidArgument
// for a setup that contradicts itself.
Prediction play(const Traced& program, const RunSetup& setup, const PlayOptions& options = {});
// Plays a trace on a device that is there. Throws what Device::initialize and make_allocator throw, except
// OutOfMemory.
Prediction play(const Trace& trace, const StrategySettings& strategy, Device& device,
                const PlayOptions& options = {});

// Returns true if a program that fitted uses the same memory in `smaller`, the same setup with no larger
// total of the GPUs, so that it need not be replayed there: the devices grant all requests, and no strategy
// depends on the total. Returns false if that is unknown.
bool would_play_alike(const Traced& program, const Prediction& fitted, const RunSetup& smaller);

// The setup with what the libraries of a traced program take beside PyTorch's memory: PyTorch's kernels, a
// handle of cuBLAS for each thread that multiplies matrices, NCCL. As it is where the trace does not say.
RunSetup with_libraries(const Traced& program, RunSetup setup);
// The strategy of a setup as it acts where context and libraries have their memory already: with a limit on
// its pool alone, and without a reserve.
StrategySettings strategy_beside_process(const RunSetup& setup);
// Returns the bytes of its device that the strategy of a program that starts no library may take: whole pages
// of the memory that others, context and libraries leave.
int64_t capacity_bytes(const RunSetup& setup);
// A device with that capacity for a strategy alone: no context, no library, no other process.
RunSetup setup_of_capacity(const DeviceProfile& profile, StrategySettings strategy, int64_t capacity_bytes);

}  // namespace headroom
