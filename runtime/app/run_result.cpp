#include "runtime/app/run_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "device/index_fault.h"

namespace headroom {

void raise_to(DeviceFigures& to, const DeviceFigures& figures) {
  for (const auto peak : {&DeviceFigures::peak_device_bytes, &DeviceFigures::peak_process_bytes,
                          &DeviceFigures::peak_reserved_bytes, &DeviceFigures::peak_allocated_bytes}) {
    to.*peak = std::max(to.*peak, figures.*peak);
  }
  to.predicted_peak_bytes = std::max(to.predicted_peak_bytes, figures.predicted_peak_bytes);
}

int exit_code_of(RunOutcome outcome) {
  switch (outcome) {
    case RunOutcome::kOk:
      return kExitDone;
    case RunOutcome::kOutOfMemory:
      return kExitOutOfMemory;
    case RunOutcome::kLibraryFailure:
    case RunOutcome::kReplicaFailure:
      return kExitLibraryFailure;
    case RunOutcome::kKilled:
    case RunOutcome::kFailed:
      break;
  }
  return kExitOther;
}

Ending attempt(const std::function<void()>& work) {
  Ending ending;
  const auto fail = [&](RunOutcome outcome, const std::exception& error) {
    ending.outcome = outcome;
    ending.error = error.what();
  };
  try {
    work();
  } catch (const OutOfMemory& error) {
    fail(RunOutcome::kOutOfMemory, error);
    ending.memory = error.facts();
  } catch (const HostOutOfMemory& error) {
    fail(RunOutcome::kOutOfMemory, error);
  } catch (const LibraryError& error) {
    fail(RunOutcome::kLibraryFailure, error);
    ending.memory = error.memory();
    ending.log = error.log();
    ending.call = error.call();
  } catch (const DeviceError& error) {  // no room for a context or kernels
    if (is_index_fault(error)) throw InvalidArgument(fmt::format("the data: {}", error.what()));
    fail(RunOutcome::kLibraryFailure, error);
    ending.call = error.call();
  } catch (const CollectiveError& error) {
    fail(RunOutcome::kReplicaFailure, error);
  }
  return ending;
}

std::string name_failed_replica(const RunResult& result) {
  const int rank = *result.failed_rank;
  return fmt::format("replica {} on {}", rank, result.replicas[static_cast<size_t>(rank)].device);
}

RunResult merge(const std::vector<const RunResult*>& replicas) {
  // A replica's own failure has priority over one that it was told of.
  const auto rate = [](const RunResult* run) {
    return run->outcome == RunOutcome::kOk ? 0 : run->outcome == RunOutcome::kReplicaFailure ? 1 : 2;
  };
  const auto told = std::ranges::max_element(
      replicas, [&](const RunResult* a, const RunResult* b) { return rate(a) < rate(b); });
  RunResult merged = **told;
  merged.devices.clear();
  merged.replicas.clear();
  for (const RunResult* run : replicas) {
    raise_to(merged, *run);
    merged.optimizer_bytes = std::max(merged.optimizer_bytes, run->optimizer_bytes);
    merged.devices.insert(merged.devices.end(), run->devices.begin(), run->devices.end());
    merged.replicas.insert(merged.replicas.end(), run->replicas.begin(), run->replicas.end());
    if (merged.outcome == RunOutcome::kOk && run->weights_checksum != merged.weights_checksum) {
      merged.outcome = RunOutcome::kReplicaFailure;
      merged.error = fmt::format("the weights of {} and {} differ: {} and {}", merged.replicas[0].device,
                                 run->replicas[0].device, merged.weights_checksum, run->weights_checksum);
    }
  }
  if ((*told)->outcome != RunOutcome::kOk && replicas.size() > 1) {
    merged.failed_rank = static_cast<int>(told - replicas.begin());
    merged.error = fmt::format("{}: {}", name_failed_replica(merged), merged.error);
  }
  return merged;
}

}  // namespace headroom
