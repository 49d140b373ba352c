#include "runtime/session/device_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "allocators/strategies/direct_allocator.h"
#include "base/errors.h"
#include "device/pinned_host.h"
#include "runtime/graph/placement.h"

namespace headroom {

// Takes nothing of the host until something is allocated there.
struct DeviceSet::HostPlace {
  explicit HostPlace(Device& device)
      : host(device, std::string(kHostPlace)),
        placed{std::string(kHostPlace), &device, &allocator, {}, nullptr} {
    allocator.set_device_name(std::string(kHostPlace));
  }
  HostPlace(const HostPlace&) = delete;
  HostPlace& operator=(const HostPlace&) = delete;

  PinnedHost host;
  DirectAllocator allocator{host, "direct", std::nullopt};
  const PlacedDevice placed;
};

DeviceSet::DeviceSet(std::vector<PlacedDevice> all)
    : all_(std::move(all)), host_(std::make_shared<HostPlace>(*all_.front().device)) {}

const PlacedDevice& DeviceSet::find(std::string_view name) const {
  if (name.empty()) return front();
  if (name == kHostPlace) return host_->placed;
  const auto found = std::ranges::find_if(all_, [&](const PlacedDevice& placed) {
    return (placed.in_graph.empty() ? placed.name : placed.in_graph) == name;
  });
  if (found != all_.end()) return *found;
  std::vector<std::string_view> names;
  for (const PlacedDevice& placed : all_) names.push_back(placed.name);
  throw InvalidArgument(
      fmt::format("the graph names {}, but runs on {} alone: place it on the devices of a runtime", name,
                  fmt::join(names, ", ")));
}

void copy_between(Device& from, const void* source, Device& to, void* target, int64_t bytes, Stream stream) {
  if (bytes == 0 || to.copy_from(from, target, source, bytes, stream)) return;
  // At least one of them works in host memory, which the other one can copy to or from.
  from.streams().synchronize({});
  to.streams().synchronize({});
  if (to.memory().is_host_memory()) {
    from.memory().copy_to_host(target, source, bytes);
  } else {
    to.memory().copy_to_device(target, source, bytes);
  }
}

}  // namespace headroom
