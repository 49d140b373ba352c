#include "runtime/replicas.h"

#include <fmt/format.h>

#include <exception>
#include <thread>
#include <vector>

#include "runtime/core/errors.h"

namespace headroom {

std::vector<DeviceName> replica_devices(const Runtime& runtime, int replicas) {
  const DeviceName first = default_device(runtime.options());
  if (replicas == 1) return {first};
  if (!runtime.options().place.empty()) {
    throw InvalidArgument("place spreads one net over devices, and each replica has the whole net on one");
  }
  if (first.ordinal != 0) {
    throw InvalidArgument(fmt::format(
        "replicas are on the first devices, {} is another; visible-devices chooses", first.short_text()));
  }
  const size_t count = runtime.devices().logical.size();
  if (static_cast<size_t>(replicas) > count) {
    throw InvalidArgument(fmt::format(
        "{} replicas need as many logical GPUs, device {} has {}; virtual-devices cuts one into several",
        replicas, runtime.options().device, count));
  }
  std::vector<DeviceName> names;
  for (int rank = 0; rank < replicas; ++rank) names.push_back({DeviceType::kGpu, rank});
  return names;
}

std::string name_replica(int rank) {
  return fmt::format("replica {} on {}", rank, DeviceName{DeviceType::kGpu, rank}.short_text());
}

void run_replicas(int replicas, std::chrono::milliseconds timeout, const ReplicaBody& body) {
  std::vector<std::unique_ptr<Collective>> group = make_in_process_group(replicas, timeout);
  std::vector<std::exception_ptr> causes(group.size()), echoes(group.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(static_cast<int>(rank), std::move(group[rank]));
      } catch (const CollectiveError&) {
        echoes[rank] = std::current_exception();
      } catch (...) {
        causes[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto* exceptions : {&causes, &echoes}) {
    for (const std::exception_ptr& exception : *exceptions) {
      if (exception != nullptr) std::rethrow_exception(exception);
    }
  }
}

}  // namespace headroom
