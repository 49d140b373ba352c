// Runs the given steps on a GPU, in a process of its own, and prints one line for each: the exception, or
// "ok". Most of them fail.
#undef NDEBUG  // the assert is what is tested
#include <cassert>
#include <cstdio>
#include <exception>
#include <functional>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "device/cuda/ballast.h"
#include "device/cuda/check.h"
#include "device/cuda/cuda_device.h"

namespace headroom::cuda {
namespace {

__global__ void expect_below(int index, int extent) {
  assert(index < extent);
}

constexpr int kLocalInts = 4096;

// Needs 16 KiB of stack: indices that only the run knows cannot be kept in registers.
__global__ void reverse_on_stack(int* out, const int* order) {
  int local[kLocalInts];
  for (int i = 0; i < kLocalInts; ++i) local[order[i]] = i;
  for (int i = 0; i < kLocalInts; ++i) out[i] = local[i];
}

void report(const char* step, const std::function<void()>& run) {
  try {
    run();
    std::printf("%s: ok\n", step);
  } catch (const OutOfMemory& error) {
    std::printf("%s: OutOfMemory: %s\n", step, error.what());
  } catch (const LibraryError& error) {
    std::printf("%s: LibraryError %s %s\n", step, error.call().c_str(), error.status().c_str());
  } catch (const DeviceError& error) {
    std::printf("%s: DeviceError %s %s\n", step, error.call().c_str(), error.status().c_str());
  }
  std::fflush(stdout);
}

// The context exists, all memory is allocated, and only then a library starts.
void exhaust(Library library) {
  CudaDevice device({});
  device.initialize();
  Ballast all;
  all.leave(0);
  report("full", [&] { device.libraries().start(library); });
  report("again", [&] { device.libraries().start(library); });
  all.release();
  report("free", [&] { device.libraries().start(library); });
}

// To be run while another process holds the whole card.
void come_late() {
  report("context", [] {
    CudaDevice device({});
    device.initialize();
  });
  cublasHandle_t blas = nullptr;
  report("blas", [&] { HR_CHECK(cublasCreate(&blas)); });
  cudnnHandle_t dnn = nullptr;
  report("dnn", [&] { HR_CHECK(cudnnCreate(&dnn)); });
  report("list", [] {
    const GpuList list = list_gpus();
    const PhysicalGpu* gpu = list.find(0);
    if (gpu == nullptr || !list.problem.empty() || gpu->free_bytes > kGiB) {
      throw DeviceError(list.problem, "list_gpus", "wrong");
    }
  });
}

// An index that no kernel of ours would let through stops the context; everything after it fails.
void assert_on_device() {
  CudaDevice device({});
  device.initialize();
  report("before", [&] { device.memory().release(device.memory().try_allocate(kMiB), kMiB); });
  expect_below<<<1, 1>>>(7, 5);
  report("synchronize", [&] { device.streams().synchronize({}); });
  report("blas", [&] { device.libraries().start(Library::kBlas); });
  report("dnn", [&] { device.libraries().start(Library::kDnn); });
  report("allocate", [&] { device.memory().try_allocate(kMiB); });
  report("info", [&] { device.memory().info(); });
}

size_t stack_limit() {
  size_t bytes = 0;
  HR_CHECK(cudaDeviceGetLimit(&bytes, cudaLimitStackSize));
  return bytes;
}

void expect(bool holds) {
  if (!holds) throw DeviceError("not as expected", "child", "WRONG");
}

void use_stack(Device& device) {
  std::vector<int> order(kLocalInts), back(kLocalInts);
  for (int i = 0; i < kLocalInts; ++i) order[i] = kLocalInts - 1 - i;
  constexpr int64_t kBytes = kLocalInts * sizeof(int);
  auto* const on_device = static_cast<int*>(device.memory().try_allocate(2 * kBytes));
  device.memory().copy_to_device(on_device, order.data(), kBytes);
  reverse_on_stack<<<1, 1>>>(on_device + kLocalInts, on_device);
  HR_CHECK(cudaGetLastError());
  device.memory().copy_to_host(back.data(), on_device + kLocalInts, kBytes);
  expect(back == order);
  device.memory().release(on_device, 2 * kBytes);
}

void make_a_context() {
  CudaDevice device({});
  device.initialize();
  report("stacks", [&] {
    const MemoryInfo info = device.memory().info();
    expect(info.process < info.context && info.peak_process >= info.context);
  });
  report("kernel", [&] { use_stack(device); });
}

void find_a_context() {
  HR_CHECK(cudaFree(nullptr));
  const size_t before = stack_limit();
  CudaDevice device({});
  device.initialize();
  report("stacks", [&] { expect(before > 0 && stack_limit() == before); });
}

}  // namespace
}  // namespace headroom::cuda

int main(int argc, char** argv) {
  using namespace headroom;
  const std::string_view what = argc > 1 ? argv[1] : "";
  try {
    if (what == "blas") cuda::exhaust(Library::kBlas);
    if (what == "dnn") cuda::exhaust(Library::kDnn);
    if (what == "late") cuda::come_late();
    if (what == "make context") cuda::make_a_context();
    if (what == "find context") cuda::find_a_context();
    if (what == "assert") cuda::assert_on_device();
  } catch (const std::exception& error) {
    std::printf("died: %s\n", error.what());
    return 1;
  }
  return 0;
}
