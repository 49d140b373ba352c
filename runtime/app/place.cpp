#include "runtime/app/place.h"

#include <fmt/format.h>

#include <cstdio>

#include "runtime/graph/placement.h"
#include "runtime/session/start_op.h"

namespace headroom {
namespace {

// The devices that the graph of one of several replicas may name.
std::vector<DeviceName> names_in_replica(const ReplicaDevices& replica) {
  std::vector<DeviceName> names;
  for (int i = 0; i < *replica.count; ++i) names.push_back({replica.first.type, i});
  return names;
}

}  // namespace

void place(Graph& graph, const RuntimeOptions& options, int replicas) {
  if (options.place.empty()) return;
  place(graph,
        replicas > 1 ? names_in_replica(devices_of_replica(options, replicas, 0))
                     : available_devices(find_devices(options), default_device(options)),
        options.placement_settings());
}

DeviceSet place(Graph& graph, Runtime& runtime, CodePlace here) {
  return place(graph, runtime, {runtime.current_device()}, here);
}

DeviceSet place(Graph& graph, Runtime& runtime, const ReplicaDevices& replica, CodePlace here) {
  const RuntimeOptions& options = runtime.options();
  const std::vector<DeviceName> names =
      replica.count ? names_in_replica(replica) : available_devices(runtime.devices(), replica.first);
  place(graph, names, options.placement_settings());
  if (options.log_placement) {
    const auto on_machine = [&](const std::string& device) { return replica.find(device); };
    for (const std::string& line : placement_lines(graph, on_machine)) fmt::print(stderr, "{}\n", line);
  }
  const std::vector<std::string> all_used = devices_of(graph);
  for (const std::string& used : all_used) {
    runtime.expect_libraries(replica.find(used).text(), libraries_of(graph, used));
  }
  std::vector<PlacedDevice> devices;
  for (const std::string& used : all_used) {
    const std::string name = replica.find(used).text();
    devices.push_back({name, &runtime.device(name, here), &runtime.allocator(name, here),
                       used.empty() ? names.front().text() : used});
  }
  return DeviceSet(std::move(devices));
}

}  // namespace headroom
