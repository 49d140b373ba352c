#include "device/cuda/index_faults.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "device/cuda/check.h"
#include "device/index_fault.h"

namespace headroom::cuda {

IndexFaults::Site::Site(Site&& other) noexcept
    : faults_(other.faults_), number_(other.number_), slot_(other.slot_) {
  other.faults_ = nullptr;
}

IndexFaults::Site::~Site() {
  if (faults_ != nullptr) faults_->remove(number_);
}

IndexFaults::~IndexFaults() {
  for (FaultSlot page : pages_) cudaFreeHost(page);
}

IndexFaults::Site IndexFaults::add(std::string_view op_name, std::string_view what, int64_t extent) {
  const std::lock_guard lock(mutex_);
  const auto free =
      std::find_if(kernels_.begin(), kernels_.end(), [](const Kernel& kernel) { return !kernel.live; });
  const auto number = static_cast<size_t>(free - kernels_.begin());
  if (number == pages_.size() * kSlotsPerPage) {
    pages_.reserve(pages_.size() + 1);
    device_pages_.reserve(device_pages_.size() + 1);
    void *page = nullptr, *device_page = nullptr;
    HR_CHECK(cudaHostAlloc(&page, kSlotsPerPage * sizeof(*FaultSlot{}), cudaHostAllocMapped));
    pages_.push_back(static_cast<FaultSlot>(page));
    HR_CHECK(cudaHostGetDevicePointer(&device_page, page, 0));
    device_pages_.push_back(static_cast<FaultSlot>(device_page));
  }
  if (free == kernels_.end()) kernels_.emplace_back();
  kernels_[number] = {true, std::string(op_name), std::string(what), extent};
  *host_slot(number) = kNoFault;
  return Site(this, number, &device_pages_[number / kSlotsPerPage][number % kSlotsPerPage]);
}

void IndexFaults::remove(size_t number) noexcept {
  const std::lock_guard lock(mutex_);
  kernels_[number].live = false;
}

void IndexFaults::throw_first() {
  const std::lock_guard lock(mutex_);
  std::optional<DeviceError> first;
  for (size_t number = 0; number < kernels_.size(); ++number) {
    if (!kernels_[number].live) continue;
    volatile unsigned long long& slot = *host_slot(number);
    const unsigned long long fault = slot;
    if (fault == kNoFault) continue;
    slot = kNoFault;
    if (first) continue;
    const Kernel& kernel = kernels_[number];
    first = index_fault(kernel.op_name, kernel.what, static_cast<int32_t>(static_cast<uint32_t>(fault)),
                        static_cast<int64_t>(fault >> 32), kernel.extent);
  }
  if (first) throw *first;
}

}  // namespace headroom::cuda
