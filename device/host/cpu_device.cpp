#include "device/host/cpu_device.h"

#include <fmt/format.h>

#include <fstream>

#include "base/errors.h"
#include "device/host_memory.h"

namespace headroom {
namespace {

int64_t capacity_of(std::optional<int64_t> capacity_bytes) {
  if (!capacity_bytes) return host_total_bytes();
  if (*capacity_bytes < 1) {
    throw InvalidArgument(
        fmt::format("capacity of the CPU: {} bytes, but at least 1 is needed", *capacity_bytes));
  }
  return *capacity_bytes;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

}  // namespace

CpuDevice::CpuDevice(std::optional<int64_t> capacity_bytes, CpuThreads threads)
    : info_{"/device:CPU:0", processor_name()},
      memory_(capacity_of(capacity_bytes), streams_),
      captures_(threads.inter_op),
      kernel_threads_(threads.intra_op) {
  if (threads.inter_op < 1) throw InvalidArgument("the CPU runs its work on at least one thread");
}

}  // namespace headroom
