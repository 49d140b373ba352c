// Headroom's memory strategies as a memory resource of RMM. Needs RMM's headers and libheadroom.so:
//   headroom::rmm_resource resource("mapped");
//   rmm::mr::set_current_device_resource(&resource);          // RMM up to 26.04
//   rmm::mr::set_current_device_resource(resource);           // RMM from 26.06 on
// A resource is for the device that is current when it is made. Copies share one strategy.
#pragma once

#include <cuda_runtime_api.h>
#include <headroom_strategy.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <rmm/error.hpp>
#include <string>
#include <utility>

// RMM's class of resources, which it replaced by a concept of the CUDA C++ library in 26.06.
#if __has_include(<rmm/mr/device_memory_resource.hpp>)
#include <rmm/mr/device_memory_resource.hpp>
#define HEADROOM_RMM_HAS_CLASS 1
#elif __has_include(<rmm/mr/device/device_memory_resource.hpp>)
#include <rmm/mr/device/device_memory_resource.hpp>
#define HEADROOM_RMM_HAS_CLASS 1
#else
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#define HEADROOM_RMM_HAS_CLASS 0
#endif

namespace headroom {

#if HEADROOM_RMM_HAS_CLASS
// NOLINTNEXTLINE(readability-identifier-naming): as RMM names its resources
class rmm_resource final : public rmm::mr::device_memory_resource {
#else
// NOLINTNEXTLINE(readability-identifier-naming)
class rmm_resource final {
#endif
 public:
  // `strategy` as --strategy takes it; `device` as headroom_open does, by default the current GPU. Throws
  // rmm::logic_error for a strategy or device that does not exist.
  explicit rmm_resource(std::string const& strategy, std::string device = "") {
    if (device.empty()) {
      int current = 0;
      cudaGetDevice(&current);
      device = "cuda:" + std::to_string(current);
    }
    headroom_allocator* opened = nullptr;
    if (headroom_open(strategy.c_str(), device.c_str(), &opened) != HEADROOM_OK) {
      throw rmm::logic_error(headroom_error());
    }
    allocator_.reset(opened, headroom_close);
  }

  // Requested, allocated and reserved bytes with their peaks.
  headroom_counts counts() const {
    headroom_counts all = {};
    headroom_count(allocator_.get(), &all, sizeof all);
    return all;
  }
  // Releases idle memory to the driver; returns the bytes released.
  std::int64_t trim() {
    return headroom_trim(allocator_.get());
  }

#if !HEADROOM_RMM_HAS_CLASS
  void* allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t = 256) {
    return take(bytes, stream.get());
  }
  void deallocate(cuda::stream_ref stream, void* pointer, std::size_t, std::size_t = 256) noexcept {
    give_back(pointer, stream.get());
  }
  void* allocate_sync(std::size_t bytes, std::size_t = 256) {
    return take(bytes, nullptr);
  }
  void deallocate_sync(void* pointer, std::size_t, std::size_t = 256) noexcept {
    cudaStreamSynchronize(nullptr);
    give_back(pointer, nullptr);
  }
  friend void get_property(rmm_resource const&, cuda::mr::device_accessible) noexcept {}
  bool operator==(rmm_resource const& other) const noexcept {
    return allocator_ == other.allocator_;
  }
  bool operator!=(rmm_resource const& other) const noexcept {
    return !(*this == other);
  }
#endif

 private:
#if HEADROOM_RMM_HAS_CLASS
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
    return take(bytes, stream.value());
  }
  void do_deallocate(void* pointer, std::size_t, rmm::cuda_stream_view stream) noexcept override {
    give_back(pointer, stream.value());
  }
  bool do_is_equal(rmm::mr::device_memory_resource const& other) const noexcept override {
    auto const* resource = dynamic_cast<rmm_resource const*>(&other);
    return resource != nullptr && resource->allocator_ == allocator_;
  }
#endif

  void* take(std::size_t bytes, void* stream) {
    void* pointer = nullptr;
    auto const status =
        headroom_allocate(allocator_.get(), static_cast<std::int64_t>(bytes), stream, &pointer);
    if (status == HEADROOM_OK) return pointer;
    if (status == HEADROOM_OUT_OF_MEMORY) throw rmm::out_of_memory(headroom_error());
    throw rmm::bad_alloc(headroom_error());
  }
  void give_back(void* pointer, void* stream) noexcept {
    headroom_deallocate(allocator_.get(), pointer, stream);
  }

  std::shared_ptr<headroom_allocator> allocator_;
};

}  // namespace headroom
