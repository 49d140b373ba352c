#include "runtime/app/place.h"

#include <fmt/format.h>

#include <cstdio>

#include "runtime/graph/placement.h"
#include "runtime/session/start_op.h"

namespace headroom {

void place(Graph& graph, const RuntimeOptions& options) {
  if (options.place.empty()) return;
  place(graph, available_devices(find_devices(options), default_device(options)),
        options.placement_settings());
}

DeviceSet place(Graph& graph, Runtime& runtime, CodePlace here) {
  const RuntimeOptions& options = runtime.options();
  const std::vector<DeviceName> names = runtime.available_devices();
  place(graph, names, options.placement_settings());
  if (options.log_placement) {
    for (const std::string& line : placement_lines(graph, names.front())) fmt::print(stderr, "{}\n", line);
  }
  const auto name_of = [&](const std::string& used) { return used.empty() ? names.front().text() : used; };
  const std::vector<std::string> all_used = devices_of(graph);
  for (const std::string& used : all_used) runtime.expect_libraries(name_of(used), libraries_of(graph, used));
  std::vector<PlacedDevice> devices;
  for (const std::string& used : all_used) {
    const std::string name = name_of(used);
    devices.push_back({name, &runtime.device(name, here), &runtime.allocator(name, here)});
  }
  return DeviceSet(std::move(devices));
}

}  // namespace headroom
