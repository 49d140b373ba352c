#include "device/host/cpu_memory.h"

#include <cstring>

#include "base/bytes.h"

namespace headroom {
namespace {

constexpr int64_t kGranularityBytes = 256;  // the alignment that DeviceMemory promises

}  // namespace

CpuMemory::CpuMemory(int64_t capacity_bytes, SimulatedStreams& streams)
    : streams_(streams), ledger_(capacity_bytes, 0), virtual_memory_(ledger_, kPageBytes, {}) {}

void* CpuMemory::try_allocate(int64_t bytes) {
  const int64_t taken = round_up(bytes, kGranularityBytes);
  if (!ledger_.try_take(taken)) return nullptr;
  void* pointer = pages_.take(bytes);
  if (pointer == nullptr) ledger_.give_back(taken);
  return pointer;
}

void CpuMemory::release(void* pointer, int64_t bytes) noexcept {
  if (pointer == nullptr) return;
  pages_.give_back(pointer, bytes);
  ledger_.give_back(round_up(bytes, kGranularityBytes));
}

void CpuMemory::copy_to_device(void* device, const void* host, int64_t bytes) {
  std::memcpy(device, host, static_cast<size_t>(bytes));
}

void CpuMemory::copy_to_host(void* host, const void* device, int64_t bytes) {
  std::memcpy(host, device, static_cast<size_t>(bytes));
}

int64_t CpuMemory::granularity_bytes() const {
  return kGranularityBytes;
}

std::unique_ptr<StreamOrderedPool> CpuMemory::make_stream_ordered_pool(
    const StreamOrderedPoolSettings& settings) {
  return std::make_unique<HostStreamPool>(settings, ledger_, pages_, streams_, kGranularityBytes,
                                          StreamPoolCosts{}, [](double) {});
}

}  // namespace headroom
