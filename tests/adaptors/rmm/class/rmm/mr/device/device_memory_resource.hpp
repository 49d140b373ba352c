// A stand-in that follows RMM's published interface (24.12): the base class of resources.
#pragma once
#include <cstddef>
#include <rmm/cuda_stream_view.hpp>

namespace rmm::mr {
class device_memory_resource {
 public:
  virtual ~device_memory_resource() = default;
  void* allocate(std::size_t bytes, cuda_stream_view stream = {}) { return do_allocate(bytes, stream); }
  void deallocate(void* pointer, std::size_t bytes, cuda_stream_view stream = {}) {
    do_deallocate(pointer, bytes, stream);
  }
  bool is_equal(device_memory_resource const& other) const noexcept { return do_is_equal(other); }

 private:
  virtual void* do_allocate(std::size_t bytes, cuda_stream_view stream) = 0;
  virtual void do_deallocate(void* pointer, std::size_t bytes, cuda_stream_view stream) = 0;
  virtual bool do_is_equal(device_memory_resource const& other) const noexcept { return this == &other; }
};
}  // namespace rmm::mr
