#include "runtime/app/replicas.h"

#include <fmt/format.h>

#include <exception>
#include <thread>

#include "base/errors.h"
#include "runtime/app/place.h"

namespace headroom {

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

ReplicaPlace settle_replica(Graph& graph, Runtime& runtime, const ReplicaDevices& devices,
                            Collective* group) {
  const DeviceSet placed = place(graph, runtime, devices);
  std::vector<PlacedDevice> all(placed.all().begin(), placed.all().end());
  std::vector<std::unique_ptr<DeviceCollective>> collectives;
  if (group != nullptr) {
    std::vector<Device*> in_order;
    for (const PlacedDevice& device : all) in_order.push_back(device.device);
    for (Device* const device : in_order) device->initialize();
    collectives = make_device_collectives(in_order, *group);
    for (size_t i = 0; i < all.size(); ++i) all[i].collective = collectives[i].get();
  }
  all.front().device->initialize();  // makes it the current GPU of this thread
  return {std::move(collectives), DeviceSet(std::move(all))};
}

void run_replica(Runtime& runtime, const ReplicaDevices& devices, RunResult& result,
                 const std::function<void()>& work) {
  static_cast<Ending&>(result) = attempt(work);
  if (result.devices.empty()) {
    for (int i = 0; i < devices.count.value_or(1); ++i) {
      const DeviceName name{devices.first.type, devices.first.ordinal + i};
      result.devices.push_back({{}, name.short_text(), {}});
    }
  }
  for (DeviceResult& device : result.devices) {
    const MemoryInfo info = runtime.memory_info(device.device);
    const Statistics statistics = runtime.statistics(device.device);
    device.peak_device_bytes = info.peak_used;
    device.peak_process_bytes = info.peak_process;
    device.peak_reserved_bytes = statistics.reserved.peak;
    device.peak_allocated_bytes = statistics.allocated.peak;
    raise_to(result, device);
  }
  result.replicas = {{static_cast<const ReplicaFigures&>(result), devices.text(), {}}};
}

}  // namespace headroom
