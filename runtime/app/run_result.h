// The outcome and the memory of a program, on one device, on several or in replicas. Knows no program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/enum_names.h"
#include "base/errors.h"

namespace headroom {

enum class RunOutcome : uint8_t {
  kOk,
  kOutOfMemory,
  kLibraryFailure,  // a library, the driver or a device failed
  kReplicaFailure,  // a collective failed, or the weights of replicas differ
  kKilled,          // the process died
  kFailed,          // with any other error
};
constexpr auto value_names(RunOutcome) {
  return std::to_array<std::string_view>(
      {"ok", "out_of_memory", "library_failure", "replica_failure", "killed", "failed"});
}
int exit_code_of(RunOutcome outcome);

struct Ending {
  RunOutcome outcome = RunOutcome::kOk;
  std::string error;                  // one line; empty for kOk
  std::string call;                   // the call of a library or the driver that failed: "cublasCreate"
  std::vector<std::string> log;       // log lines before a library's failure
  std::optional<MemoryFacts> memory;  // known when memory ran out
};

// Calls `work`, and catches lack of memory and failures of libraries, devices and collectives.
Ending attempt(const std::function<void()>& work);

struct DeviceFigures {
  int64_t peak_device_bytes = 0;    // the driver's figure for the GPU, other processes included
  int64_t peak_process_bytes = 0;   // the driver's figure for this process
  int64_t peak_reserved_bytes = 0;  // by the device's strategy
  int64_t peak_allocated_bytes = 0;
  // The prediction of peak_allocated_bytes; absent if the run failed, or there is no prediction.
  std::optional<int64_t> predicted_peak_bytes;
};

// Sets each figure of `to` to the larger of both.
void raise_to(DeviceFigures& to, const DeviceFigures& figures);

struct DeviceResult : DeviceFigures {
  std::string device;  // "/GPU:1"
  std::string host;    // empty when all run in one process
};

// For a replica on its device, or for all devices of a net that is placed.
struct ReplicaFigures : DeviceFigures {
  int64_t optimizer_bytes = 0;   // the optimizer's state
  std::string weights_checksum;  // at the end, 16 hexadecimal digits; empty after a failure
};

struct ReplicaResult : ReplicaFigures {
  std::string device;  // "/GPU:1", or all of them: "/GPU:2, /GPU:3"
  std::string host;    // as in DeviceResult
};

// The figures are the largest of any replica and device.
struct RunResult : Ending, ReplicaFigures {
  std::optional<int> failed_rank;       // when one of several replicas failed
  std::vector<DeviceResult> devices;    // all used devices, the default one first
  std::vector<ReplicaResult> replicas;  // by rank, at least one
  std::vector<std::string> notes;       // for the user: how a budget of memory changes the results
};

// "replica 1 on /GPU:1", for the replica that failed.
std::string name_failed_replica(const RunResult& result);

// Merges the results of all replicas, ordered by rank. Of several failures, keeps the one that caused the
// others, with its replica named in the error. Different weights count as a failure.
RunResult merge(const std::vector<const RunResult*>& replicas);

// Merges results with more members, which come from the replica that failed first, or from the first one.
template <typename Result>
Result merge_replicas(const std::vector<Result>& replicas) {
  std::vector<const RunResult*> runs;
  runs.reserve(replicas.size());
  for (const Result& replica : replicas) runs.push_back(&replica);
  const RunResult all = merge(runs);
  Result merged = replicas[static_cast<size_t>(all.failed_rank.value_or(0))];
  static_cast<RunResult&>(merged) = all;
  return merged;
}

}  // namespace headroom
