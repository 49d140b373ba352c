#include "answers/sharing_replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace headroom {
namespace {

using BytesOfGpus = std::vector<int64_t>;  // by position in the setup's map

constexpr size_t kNoGpu = static_cast<size_t>(-1);

size_t position_of(const RunSetup& setup, const std::string& device) {
  const PhysicalGpu* const gpu = gpu_of(setup, device);
  return gpu == nullptr ? kNoGpu : static_cast<size_t>(gpu - setup.gpus.physical.data());
}

Traced replica_of(const Traced& program, int rank) {
  Traced replica{.starts_libraries = program.starts_libraries};
  std::vector<size_t> positions;
  for (const TracedDevice& device : program.devices) {
    positions.push_back(replica.devices.size());
    if (device.rank == rank) replica.devices.push_back(device);
  }
  for (size_t i = 0; i < program.turns.size(); ++i) {
    const Turn& turn = program.turns[i];
    if (program.devices[turn.device].rank != rank) continue;
    const bool begins_step = std::ranges::binary_search(program.steps, i);
    if (begins_step) replica.steps.push_back(replica.turns.size());
    replica.turns.push_back({positions[turn.device], turn.events, turn.start});
  }
  return replica;
}

// The most that the strategies of a replica take of each GPU, without context and libraries.
BytesOfGpus peaks_of(const Traced& replica, RunSetup setup) {
  BytesOfGpus peaks(setup.gpus.physical.size());
  const int64_t total = setup.device.total_bytes;
  setup.device = setup_of_capacity(setup.device, {}, total).device;
  setup.device.total_bytes = total;
  for (const PlayedDevice& device : play(replica, setup).devices) {
    const size_t gpu = position_of(setup, device.name);
    if (gpu != kNoGpu) peaks[gpu] = device.process_bytes;
  }
  return peaks;
}

// The setup of a replica beside the others at their peaks. Its context is there before any of them.
RunSetup setup_beside(const BytesOfGpus& others, RunSetup setup) {
  for (size_t gpu = 0; gpu < others.size(); ++gpu) setup.gpus.physical[gpu].used_bytes += others[gpu];
  setup.device.context_bytes = setup.device.kept_context_bytes();
  setup.device.stack_bytes = 0;
  return setup;
}

}  // namespace

bool has_sharing_replicas(const Traced& program, const RunSetup& setup) {
  std::vector<int> ranks(setup.gpus.physical.size(), -1);
  return std::ranges::any_of(program.devices, [&](const TracedDevice& device) {
    const size_t gpu = position_of(setup, device.name);
    if (gpu == kNoGpu) return false;
    const int before = std::exchange(ranks[gpu], device.rank);
    return before >= 0 && before != device.rank;
  });
}

void let_peaks_meet(const Traced& program, const RunSetup& setup, Prediction& played) {
  played.total_is_most = true;
  std::vector<Traced> replicas;
  std::vector<BytesOfGpus> others;  // by rank
  BytesOfGpus sums(setup.gpus.physical.size());
  for (int rank = 0; rank <= program.devices.back().rank; ++rank) {
    replicas.push_back(replica_of(program, rank));
    others.push_back(peaks_of(replicas.back(), setup));
    for (size_t gpu = 0; gpu < sums.size(); ++gpu) sums[gpu] += others.back()[gpu];
  }
  for (size_t rank = 0; rank < replicas.size(); ++rank) {
    for (size_t gpu = 0; gpu < sums.size(); ++gpu) others[rank][gpu] = sums[gpu] - others[rank][gpu];
    const Prediction alone = play(replicas[rank], setup_beside(others[rank], setup));
    if (!alone.fits) {
      played.fits = false;
      played.lacking_bytes = alone.lacking_bytes;
      played.reason =
          fmt::format("replicas that share a GPU may reach their peaks together: replica {} then lacks {}",
                      rank, format_bytes(alone.lacking_bytes));
      return;
    }
    played.used_bytes = std::max(played.used_bytes, alone.used_bytes);
    for (const PlayedDevice& from : alone.devices) {
      const size_t gpu = position_of(setup, from.name);
      if (gpu == kNoGpu) continue;
      for (PlayedDevice& to : played.devices) {
        if (position_of(setup, to.name) != gpu) continue;
        to.process_bytes = std::max(to.process_bytes, from.process_bytes + others[rank][gpu]);
      }
    }
  }
}

}  // namespace headroom
