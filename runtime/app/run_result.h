// How a program ended and what it took, on one device, on several or in replicas. Knows no program.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/enum_names.h"
#include "runtime/base/errors.h"

namespace headroom {

enum class RunOutcome : uint8_t {
  kOk,
  kOutOfMemory,
  kLibraryFailure,  // of a library, the driver or a device
  kReplicaFailure,  // of a collective, or the weights of replicas differ
  kKilled,          // the process died
  kFailed,          // with any other error
};
template <>
struct EnumNames<RunOutcome> {
  static constexpr std::array<std::string_view, 6> kNames = {
      "ok", "out_of_memory", "library_failure", "replica_failure", "killed", "failed"};
};
int exit_code_of(RunOutcome outcome);

struct Ending {
  RunOutcome outcome = RunOutcome::kOk;
  std::string error;                  // one line; empty when all went well
  std::string call;                   // of a library or the driver that failed: "cublasCreate"
  std::vector<std::string> log;       // lines that led to a library's failure
  std::optional<MemoryFacts> memory;  // what was known when memory ran out
};

// Calls `work`. Lack of memory, failures of libraries, devices and collectives are its ending; all else is
// thrown.
Ending attempt(const std::function<void()>& work);

struct DeviceFigures {
  int64_t peak_device_bytes = 0;    // of the GPU, as the driver sees it, others included
  int64_t peak_process_bytes = 0;   // of it this process
  int64_t peak_reserved_bytes = 0;  // of the device's own strategy
  int64_t peak_allocated_bytes = 0;
  // Of peak_allocated_bytes; absent when the prediction is a failure, or there is none.
  std::optional<int64_t> predicted_peak_bytes;
};

// Each of `to` becomes the larger of both.
void raise_to(DeviceFigures& to, const DeviceFigures& figures);

struct DeviceResult : DeviceFigures {
  std::string device;  // "/GPU:1"
  std::string host;    // empty where all are of one process
};

// Of a replica on its device, or of all devices of a net that is placed.
struct ReplicaFigures : DeviceFigures {
  int64_t optimizer_bytes = 0;   // of what is allocated the optimizer's state
  std::string weights_checksum;  // in the end, 16 hexadecimal digits; empty where it failed
};

struct ReplicaResult : ReplicaFigures {
  std::string device, host;  // as of DeviceResult
};

// Its figures are the largest of any replica and device, its weights those of all.
struct RunResult : Ending, ReplicaFigures {
  std::optional<int> failed_rank;       // of the replica that failed, where there are several
  std::vector<DeviceResult> devices;    // all that were used, the default one first
  std::vector<ReplicaResult> replicas;  // by rank, one at least
};

// "replica 1 on /GPU:1", of a replica that failed.
std::string name_replica(int rank);

// What all replicas came to, by rank: of failures the one that the others are due to, led by the name of its
// replica. Weights that differ are a failure, too.
RunResult merge(const std::vector<const RunResult*>& replicas);

// The same of results that hold more, which is that of the replica that the others are due to, else of the
// first.
template <typename Result>
Result merge_replicas(const std::vector<Result>& replicas) {
  std::vector<const RunResult*> runs;
  for (const Result& replica : replicas) runs.push_back(&replica);
  const RunResult all = merge(runs);
  Result merged = replicas[static_cast<size_t>(all.failed_rank.value_or(0))];
  static_cast<RunResult&>(merged) = all;
  return merged;
}

}  // namespace headroom
