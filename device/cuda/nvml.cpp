#include "device/cuda/nvml.h"

#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "device/cuda/shared_library.h"

namespace headroom::cuda {
namespace {

// From NVIDIA's nvml.h, whose binary interface does not change under these names. The toolkit need not be
// there, so the header cannot be asked.
constexpr int kSuccess = 0, kInsufficientSize = 7;
constexpr unsigned kTextBytes = 96;
constexpr unsigned long long kNotAvailable = ~0ull;

struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
constexpr unsigned kMemoryVersion = sizeof(MemoryV2) | (2u << 24);

struct ProcessV3 {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};

struct PciV3 {
  char short_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

// The text that `function(..., buffer, size)` writes; empty when it cannot.
template <typename F, typename... Arguments>
std::string text(F* function, Arguments... arguments) {
  char buffer[kTextBytes] = "";
  return function(arguments..., buffer, kTextBytes) == kSuccess ? buffer : "";
}

using ListProcesses = int(void* gpu, unsigned* count, ProcessV3* processes);

// The rows that `list` writes; nothing when it cannot.
std::optional<std::vector<ProcessV3>> rows_of(ListProcesses* list, void* gpu) {
  std::vector<ProcessV3> rows(64);
  for (;;) {
    auto count = static_cast<unsigned>(rows.size());
    const int status = list(gpu, &count, rows.data());
    if (status == kInsufficientSize && count > 0) {
      rows.resize(2 * std::max<size_t>(count, rows.size()));  // more may have come by the next call
      continue;
    }
    if (status != kSuccess) return std::nullopt;
    rows.resize(count);
    return rows;
  }
}

std::optional<int64_t> bytes_of(const ProcessV3& row) {
  if (row.used_bytes == kNotAvailable) return std::nullopt;
  return static_cast<int64_t>(row.used_bytes);
}

}  // namespace

struct Nvml::Functions {
  int (*init)();
  int (*count)(unsigned*);
  int (*by_index)(unsigned, Gpu*);
  int (*by_pci)(const char*, Gpu*);
  int (*driver_version)(char*, unsigned);
  int (*name)(Gpu, char*, unsigned);
  int (*uuid)(Gpu, char*, unsigned);
  int (*pci)(Gpu, PciV3*);
  int (*capability)(Gpu, int*, int*);
  int (*memory)(Gpu, MemoryV2*);
  ListProcesses* processes;
  ListProcesses* drawing_processes;  // null where the library has none
};

Nvml::Nvml() {
  const SharedLibrary library("libnvidia-ml.so.1");
  static Functions f;
  const bool complete =
      library.find("nvmlInit_v2", f.init) && library.find("nvmlDeviceGetCount_v2", f.count) &&
      library.find("nvmlDeviceGetHandleByIndex_v2", f.by_index) &&
      library.find("nvmlDeviceGetHandleByPciBusId_v2", f.by_pci) &&
      library.find("nvmlSystemGetDriverVersion", f.driver_version) &&
      library.find("nvmlDeviceGetName", f.name) && library.find("nvmlDeviceGetUUID", f.uuid) &&
      library.find("nvmlDeviceGetPciInfo_v3", f.pci) &&
      library.find("nvmlDeviceGetCudaComputeCapability", f.capability) &&
      library.find("nvmlDeviceGetMemoryInfo_v2", f.memory) &&
      library.find("nvmlDeviceGetComputeRunningProcesses_v3", f.processes);
  library.find("nvmlDeviceGetGraphicsRunningProcesses_v3", f.drawing_processes);
  if (complete && f.init() == kSuccess) functions_ = &f;
}

const Nvml* Nvml::instance() {
  static const Nvml nvml;
  return nvml.functions_ == nullptr ? nullptr : &nvml;
}

std::vector<Nvml::Gpu> Nvml::gpus() const {
  unsigned count = 0;
  functions_->count(&count);
  std::vector<Gpu> result;
  for (unsigned i = 0; i < count; ++i) {
    Gpu gpu = nullptr;
    if (functions_->by_index(i, &gpu) == kSuccess) result.push_back(gpu);
  }
  return result;
}

Nvml::Gpu Nvml::find(const std::string& pci_bus_id) const {
  Gpu gpu = nullptr;
  return functions_->by_pci(pci_bus_id.c_str(), &gpu) == kSuccess ? gpu : nullptr;
}

std::string Nvml::driver_version() const {
  return text(functions_->driver_version);
}

std::string Nvml::name(Gpu gpu) const {
  return text(functions_->name, gpu);
}

std::string Nvml::uuid(Gpu gpu) const {
  return text(functions_->uuid, gpu);
}

std::string Nvml::pci_bus_id(Gpu gpu) const {
  PciV3 pci{};
  return functions_->pci(gpu, &pci) == kSuccess ? pci.bus_id : "";
}

int Nvml::compute_capability(Gpu gpu) const {
  int major = 0, minor = 0;
  functions_->capability(gpu, &major, &minor);
  return major * 10 + minor;
}

std::optional<Nvml::Memory> Nvml::memory(Gpu gpu) const {
  MemoryV2 memory{};
  memory.version = kMemoryVersion;
  if (functions_->memory(gpu, &memory) != kSuccess) return std::nullopt;
  return Memory{static_cast<int64_t>(memory.total - memory.reserved), static_cast<int64_t>(memory.used),
                static_cast<int64_t>(memory.free)};
}

std::optional<int64_t> Nvml::own_bytes(Gpu gpu) const {
  const auto rows = rows_of(functions_->processes, gpu);
  if (!rows) return std::nullopt;
  const auto own = static_cast<unsigned>(getpid());
  const auto found =
      std::find_if(rows->begin(), rows->end(), [&](const ProcessV3& row) { return row.pid == own; });
  return found == rows->end() ? std::nullopt : bytes_of(*found);
}

std::optional<std::vector<GpuProcess>> Nvml::processes(Gpu gpu) const {
  auto rows = rows_of(functions_->processes, gpu);
  if (!rows) return std::nullopt;
  if (functions_->drawing_processes != nullptr) {
    const auto drawing = rows_of(functions_->drawing_processes, gpu).value_or(std::vector<ProcessV3>{});
    rows->insert(rows->end(), drawing.begin(), drawing.end());
  }
  std::vector<GpuProcess> result;
  for (const ProcessV3& row : *rows) {
    // A process that computes and draws is in both lists, each time with everything that it holds.
    const auto same = std::find_if(result.begin(), result.end(),
                                   [&](const GpuProcess& process) { return process.pid == row.pid; });
    if (same == result.end()) {
      result.push_back({static_cast<int64_t>(row.pid), bytes_of(row)});
    } else if (const auto bytes = bytes_of(row)) {
      same->bytes = std::max(*bytes, same->bytes.value_or(0));
    }
  }
  return result;
}

bool same_pci_bus_id(std::string_view a, std::string_view b) {
  const auto without_zeros = [](std::string_view text) {
    return text.substr(std::min(text.find_first_not_of('0'), text.find(':')));
  };
  if (a.find(':') == a.npos || b.find(':') == b.npos) return false;
  return lowered(without_zeros(a)) == lowered(without_zeros(b));
}

}  // namespace headroom::cuda
