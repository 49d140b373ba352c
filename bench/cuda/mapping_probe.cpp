// What the driver's calls for virtual memory take: pages one by one and in runs of one access call, and shared by
// several threads. Prints us per page.
#include <cuda.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "device/cuda/driver.h"

namespace {

using headroom::cuda::Driver;

constexpr size_t kPage = size_t{2} << 20, kPages = 1024;

void check(CUresult status, const char* call) {
  if (status == CUDA_SUCCESS) return;
  fmt::print(stderr, "mapping_probe: {}: {}\n", call, Driver::instance().name_of(status));
  std::exit(1);
}

double us_per_page(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const auto taken = std::chrono::steady_clock::now() - start;
  return std::chrono::duration<double, std::micro>(taken).count() / kPages;
}

}  // namespace

int main() {
  const Driver& driver = Driver::instance();
  check(driver.init(0), "cuInit");
  const auto use_gpu = [] {
    if (cudaSetDevice(0) != cudaSuccess || cudaFree(nullptr) != cudaSuccess) std::exit(1);
  };
  use_gpu();
  CUmemAllocationProp plain = {};
  plain.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  plain.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemAccessDesc access = {};
  access.location = plain.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr base = 0;
  check(driver.reserve_addresses(&base, kPages * kPage, 0, 0, 0), "cuMemAddressReserve");
  std::vector<CUmemGenericAllocationHandle> pages(kPages);
  const auto create = [&] {
    for (auto& page : pages) check(driver.create_memory(&page, kPage, &plain, 0), "cuMemCreate");
  };
  const auto map = [&](size_t run, size_t begin = 0, size_t end = kPages) {
    for (size_t i = begin; i < end; ++i) {
      check(driver.map_memory(base + i * kPage, kPage, 0, pages[i], 0), "cuMemMap");
      if ((i + 1) % run != 0) continue;
      check(driver.set_access(base + (i + 1 - run) * kPage, run * kPage, &access, 1), "cuMemSetAccess");
    }
  };
  const auto unmap = [&](size_t run, size_t begin = 0, size_t end = kPages) {
    for (size_t i = begin; i < end; i += run) {
      check(driver.unmap_memory(base + i * kPage, run * kPage), "cuMemUnmap");
    }
  };
  fmt::print("create {:.1f}\n", us_per_page(create));
  for (const size_t run : {1, 1, 4, 16, 64, 1024}) {
    fmt::print("map, runs of {}: {:.1f}", run, us_per_page([&] { map(run); }));
    fmt::print("; unmap: {:.1f}\n", us_per_page([&] { unmap(run); }));
  }
  for (const size_t threads : {1, 2, 4, 8}) {
    // Each thread maps and unmaps its own stretch of pages.
    const auto share = [&](const auto& part) {
      std::vector<std::thread> workers;
      const size_t pages_each = kPages / threads;
      for (size_t i = 0; i < threads; ++i) {
        workers.emplace_back([&, i] {
          use_gpu();
          part(i * pages_each, (i + 1) * pages_each);
        });
      }
      for (std::thread& worker : workers) worker.join();
    };
    fmt::print("on {} threads: map {:.1f}", threads, us_per_page([&] { share(std::bind_front(map, 1)); }));
    fmt::print("; unmap {:.1f}\n", us_per_page([&] { share(std::bind_front(unmap, 1)); }));
  }
  fmt::print("release {:.1f}\n", us_per_page([&] {
               for (const auto page : pages) check(driver.release_memory(page), "cuMemRelease");
             }));
  return 0;
}
