#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "device/cuda/nvml.h"
#include "device/gpus.h"

namespace headroom {

GpuList list_gpus() {
  GpuList list;
  std::vector<std::string> visible;
  try {
    visible = visible_gpus();
  } catch (const InvalidArgument& error) {
    list.problem = error.what();
  }
  const cuda::Nvml* nvml = cuda::Nvml::instance();
  if (nvml == nullptr) {  // then only the visible GPUs are known
    for (const std::string& id : visible) {
      PhysicalGpu row;
      row.index = static_cast<int>(list.gpus.size());
      row.ordinal = row.index;
      row.pci_bus_id = id;
      list.gpus.push_back(std::move(row));
    }
    return list;
  }
  list.driver_version = nvml->driver_version();
  for (cuda::Nvml::Gpu gpu : nvml->gpus()) {
    PhysicalGpu row;
    row.index = static_cast<int>(list.gpus.size());
    row.name = nvml->name(gpu);
    row.uuid = nvml->uuid(gpu);
    row.pci_bus_id = nvml->pci_bus_id(gpu);
    row.compute_capability = nvml->compute_capability(gpu);
    const cuda::Nvml::Memory memory = nvml->memory(gpu).value_or(cuda::Nvml::Memory{});
    row.total_bytes = memory.total;
    row.used_bytes = memory.used;
    row.free_bytes = memory.free;
    row.processes = nvml->processes(gpu);
    const auto found = std::find_if(visible.begin(), visible.end(), [&](const std::string& id) {
      return cuda::same_pci_bus_id(id, row.pci_bus_id);
    });
    if (found != visible.end()) row.ordinal = static_cast<int>(found - visible.begin());
    list.gpus.push_back(std::move(row));
  }
  return list;
}

const PhysicalGpu* GpuList::find(int ordinal) const {
  const auto gpu =
      std::find_if(gpus.begin(), gpus.end(), [&](const PhysicalGpu& row) { return row.ordinal == ordinal; });
  return gpu == gpus.end() ? nullptr : &*gpu;
}

}  // namespace headroom
