#include "device/cuda/cuda_virtual_memory.h"

#include <cstddef>
#include <utility>

#include "device/cuda/check.h"
#include "device/cuda/current_device.h"
#include "device/cuda/driver.h"

namespace headroom::cuda {
namespace {

CUmemLocation on(int ordinal) {
  CUmemLocation location = {};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = ordinal;
  return location;
}

CUmemAllocationProp plain_memory_of(int ordinal) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = on(ordinal);
  return properties;
}

CUdeviceptr address_of(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

}  // namespace

// The driver numbers devices as the runtime does: both follow CUDA_VISIBLE_DEVICES.
CudaVirtualMemory::CudaVirtualMemory(int ordinal, std::function<void(int64_t)> count)
    : ordinal_(ordinal), count_(std::move(count)) {
  const Driver& driver = Driver::instance();
  const CUmemAllocationProp properties = plain_memory_of(ordinal);
  size_t granularity = 0;
  HR_CHECK(driver.init(0));
  const CUresult status =
      driver.get_granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (status == CUDA_SUCCESS) granularity_bytes_ = static_cast<int64_t>(granularity);
}

void* CudaVirtualMemory::try_reserve_range(int64_t bytes) {
  const TimedCall timed(ordinal_, driver_time_us_);
  CUdeviceptr base = 0;
  const CUresult status = Driver::instance().reserve_addresses(&base, static_cast<size_t>(bytes), 0, 0, 0);
  return status == CUDA_SUCCESS ? reinterpret_cast<void*>(base) : nullptr;
}

void CudaVirtualMemory::release_range(void* base, int64_t bytes) noexcept {
  if (base == nullptr) return;
  const TimedCall timed(ordinal_, driver_time_us_);
  Driver::instance().free_addresses(address_of(base), static_cast<size_t>(bytes));
}

std::optional<PhysicalBlock> CudaVirtualMemory::try_create(int64_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  {
    const TimedCall timed(ordinal_, driver_time_us_);
    const CUmemAllocationProp properties = plain_memory_of(ordinal_);
    const CUresult status =
        Driver::instance().create_memory(&handle, static_cast<size_t>(bytes), &properties, 0);
    if (status == CUDA_ERROR_OUT_OF_MEMORY) return std::nullopt;
    HR_CHECK(status);
  }
  count_(bytes);
  return PhysicalBlock{handle, bytes};
}

void CudaVirtualMemory::release(const PhysicalBlock& block) noexcept {
  count_(-block.bytes);
  const TimedCall timed(ordinal_, driver_time_us_);
  Driver::instance().release_memory(block.handle);
}

bool CudaVirtualMemory::try_map_run(void* address, std::span<const PhysicalBlock> blocks) {
  const TimedCall timed(ordinal_, driver_time_us_);
  const Driver& driver = Driver::instance();
  const CUdeviceptr begin = address_of(address);
  CUdeviceptr end = begin;
  size_t mapped = 0;
  for (; mapped < blocks.size(); ++mapped) {
    const auto bytes = static_cast<size_t>(blocks[mapped].bytes);
    if (driver.map_memory(end, bytes, 0, blocks[mapped].handle, 0) != CUDA_SUCCESS) break;
    end += bytes;
  }
  CUmemAccessDesc access = {};
  access.location = on(ordinal_);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (mapped == blocks.size() && driver.set_access(begin, end - begin, &access, 1) == CUDA_SUCCESS)
    return true;
  while (mapped-- > 0) {
    const auto bytes = static_cast<size_t>(blocks[mapped].bytes);
    end -= bytes;
    driver.unmap_memory(end, bytes);
  }
  return false;
}

void CudaVirtualMemory::unmap(void* address, const PhysicalBlock& block) noexcept {
  const TimedCall timed(ordinal_, driver_time_us_);
  Driver::instance().unmap_memory(address_of(address), static_cast<size_t>(block.bytes));
}

}  // namespace headroom::cuda
