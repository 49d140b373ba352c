// headroom_rmm.hpp against RMM, or against a stand-in for it: its class of resources, or the concept that
// replaced it.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <headroom_rmm.hpp>
#ifdef HEADROOM_REAL_RMM
#if __has_include(<rmm/mr/per_device_resource.hpp>)
#include <rmm/mr/per_device_resource.hpp>
#else
#include <rmm/mr/device/per_device_resource.hpp>  // up to 25.10
#endif
#endif

namespace {

void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", promise);
  std::exit(1);
}

constexpr std::size_t kMiB = 1 << 20;

// The stream is the first argument from RMM 25.12 on, and the alignment is given from 26.06 on.
template <typename R>
void* take_from(R& resource, std::size_t bytes, cudaStream_t stream) {
  if constexpr (requires { resource.allocate(stream, bytes, 256); }) {
    return resource.allocate(stream, bytes, 256);
  } else {
    return resource.allocate(bytes, stream);
  }
}
template <typename R>
void give_back_to(R& resource, void* pointer, std::size_t bytes, cudaStream_t stream) {
  if constexpr (requires { resource.deallocate(stream, pointer, bytes, 256); }) {
    resource.deallocate(stream, pointer, bytes, 256);
  } else {
    resource.deallocate(pointer, bytes, stream);
  }
}

#if HEADROOM_RMM_HAS_CLASS
void* take(headroom::rmm_resource& resource, std::size_t bytes, cudaStream_t stream) {
  return take_from<rmm::mr::device_memory_resource>(resource, bytes, stream);
}
void give_back(headroom::rmm_resource& resource, void* pointer, std::size_t bytes, cudaStream_t stream) {
  give_back_to<rmm::mr::device_memory_resource>(resource, pointer, bytes, stream);
}
bool equal(headroom::rmm_resource const& a, headroom::rmm_resource const& b) {
  return a.is_equal(b);
}
#else
static_assert(cuda::mr::resource_with<headroom::rmm_resource, cuda::mr::device_accessible>);
void* take(headroom::rmm_resource& resource, std::size_t bytes, cudaStream_t stream) {
  return resource.allocate(stream, bytes);
}
void give_back(headroom::rmm_resource& resource, void* pointer, std::size_t bytes, cudaStream_t stream) {
  resource.deallocate(stream, pointer, bytes);
}
bool equal(headroom::rmm_resource const& a, headroom::rmm_resource const& b) {
  return a == b;
}
#endif

template <typename E, typename F>
bool throws(F call) {
  try {
    call();
  } catch (E const&) {
    return true;
  } catch (...) {
  }
  return false;
}

}  // namespace

int main() {
  headroom::rmm_resource resource("caching+limit=64MiB", "sim:rtx-3090");
  auto* const stream = reinterpret_cast<cudaStream_t>(8);
  void* const first = take(resource, 3 * kMiB, nullptr);
  void* const second = take(resource, 5 * kMiB, stream);
  require(first != nullptr && second != nullptr && first != second, "blocks differ");
  require(resource.counts().requested_bytes == 8 * static_cast<std::int64_t>(kMiB), "requests are counted");
  require(throws<rmm::out_of_memory>([&] { take(resource, 65 * kMiB, nullptr); }),
          "no room is out_of_memory");
  give_back(resource, first, 3 * kMiB, nullptr);
  give_back(resource, second, 5 * kMiB, stream);
  require(resource.counts().allocated_bytes == 0, "blocks are given back");
#ifdef HEADROOM_REAL_RMM
  // Allocates as RMM's containers do: from the resource of the device. Needs no GPU.
  const rmm::cuda_device_id device(0);
#if HEADROOM_RMM_HAS_CLASS
  rmm::mr::set_per_device_resource(device, &resource);
#else
  rmm::mr::set_per_device_resource(device, resource);
#endif
  auto current = rmm::mr::get_per_device_resource_ref(device);
  void* const third = take_from(current, kMiB, stream);
  require(resource.counts().requested_bytes == kMiB, "the resource of the device takes from the strategy");
  give_back_to(current, third, kMiB, stream);
  require(throws<rmm::out_of_memory>([&] { take_from(current, 65 * kMiB, stream); }),
          "no room is out_of_memory behind RMM's reference");
#if HEADROOM_RMM_HAS_CLASS
  rmm::mr::set_per_device_resource(device, nullptr);
#else
  rmm::mr::reset_per_device_resource(device);
#endif
#endif
  require(resource.trim() > 0 && resource.counts().reserved_bytes == 0, "trim releases idle memory");

  const headroom::rmm_resource copy = resource;
  const headroom::rmm_resource other("caching", "sim:rtx-3090");
  require(equal(copy, resource) && !equal(other, resource), "copies share one strategy");
  require(throws<rmm::logic_error>([] { headroom::rmm_resource("no-such-strategy", "cpu"); }),
          "an unknown strategy is refused");
  return 0;
}
