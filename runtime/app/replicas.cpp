#include "runtime/app/replicas.h"

#include <fmt/format.h>

#include <exception>
#include <thread>
#include <vector>

#include "runtime/app/place.h"
#include "runtime/base/errors.h"
#include "runtime/session/start_op.h"

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

ReplicaPlace settle_replica(Graph& graph, Runtime& runtime, const DeviceName& name, Collective* group) {
  const auto alone_on = [&](const std::string& device) {
    runtime.expect_libraries(device, libraries_of(graph, {}));
    return DeviceSet({{device, &runtime.device(device), &runtime.allocator(device)}});
  };
  ReplicaPlace here{group == nullptr ? place(graph, runtime) : alone_on(name.text()), nullptr};
  Device& device = runtime.device(name.text());
  device.initialise();  // makes it the current GPU of this thread
  if (group != nullptr) here.collective = make_device_collective(device, *group);
  return here;
}

void run_replica(Runtime& runtime, const DeviceName& name, RunResult& result,
                 const std::function<void()>& work) {
  static_cast<Ending&>(result) = attempt(work);
  if (result.devices.empty()) result.devices.push_back({{}, name.short_text(), {}});
  for (DeviceResult& device : result.devices) {
    const MemoryInfo info = runtime.memory_info(device.device);
    const Statistics statistics = runtime.statistics(device.device);
    device.peak_device_bytes = info.peak_used;
    device.peak_process_bytes = info.peak_process;
    device.peak_reserved_bytes = statistics.reserved.peak;
    device.peak_allocated_bytes = statistics.allocated.peak;
    raise_to(result, device);
  }
  result.replicas = {{static_cast<const ReplicaFigures&>(result), name.short_text(), {}}};
}

}  // namespace headroom
