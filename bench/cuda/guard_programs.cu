// Programs that take GPU memory in ways that frameworks do not, for guard_gpu.sh:  guard_programs MODE MIB
// fill: cudaMalloc (the runtime linked statically); virtual: physical memory mapped by hand; graphs: memory
// nodes; cost: the median time of pairs of calls.

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr size_t kMib = size_t{1} << 20;

int fill(size_t bytes) {
  size_t total = 0;
  for (void* at = nullptr; cudaMalloc(&at, bytes) == cudaSuccess; total += bytes) cudaMemset(at, 0, bytes);
  std::printf("%s after %zu MiB\n", cudaGetErrorName(cudaGetLastError()), total / kMib);
  return 0;
}

int fill_virtual(size_t bytes) {
  cudaFree(nullptr);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  size_t total = 0;
  CUresult result = CUDA_SUCCESS;
  for (;; total += bytes) {
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr at = 0;
    if ((result = cuMemCreate(&handle, bytes, &properties, 0)) != CUDA_SUCCESS) break;
    cuMemAddressReserve(&at, bytes, 0, 0, 0);
    cuMemMap(at, bytes, 0, handle, 0);
    cuMemRelease(handle);
  }
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  std::printf("%s after %zu MiB\n", name, total / kMib);
  return 0;
}

int fill_graphs(size_t bytes) {
  size_t total = 0;
  cudaError_t result = cudaSuccess;
  for (;; total += bytes) {  // each keeps its memory after the launch
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    cudaGraphNode_t node;
    cudaMemAllocNodeParams parameters{};
    parameters.poolProps.allocType = cudaMemAllocationTypePinned;
    parameters.poolProps.location = {cudaMemLocationTypeDevice, 0};
    parameters.bytesize = bytes;
    cudaGraphCreate(&graph, 0);
    if ((result = cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &parameters)) != cudaSuccess) break;
    if ((result = cudaGraphInstantiate(&ready, graph, 0)) != cudaSuccess) break;
    if ((result = cudaGraphLaunch(ready, nullptr)) != cudaSuccess) break;
    if ((result = cudaDeviceSynchronize()) != cudaSuccess) break;
  }
  std::printf("%s after %zu MiB\n", cudaGetErrorName(result), total / kMib);
  return 0;
}

template <typename Pair>
void time_pairs(const char* name, Pair pair) {
  std::vector<double> times;
  for (int i = 0; i < 5000; ++i) {
    const auto before = std::chrono::steady_clock::now();
    pair();
    times.push_back(
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - before).count());
  }
  std::nth_element(times.begin(), times.begin() + 2500, times.end());
  std::printf("%s %.0f\n", name, times[2500]);
}

int cost() {
  void* at = nullptr;
  cudaMemPool_t pool;
  uint64_t all = UINT64_MAX;
  cudaDeviceGetDefaultMemPool(&pool, 0);
  cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all);
  time_pairs("cudaMalloc+cudaFree", [&] { cudaMalloc(&at, 4 * kMib), cudaFree(at); });
  time_pairs("cudaMallocAsync+cudaFreeAsync",
             [&] { cudaMallocAsync(&at, 4 * kMib, nullptr), cudaFreeAsync(at, nullptr); });
  cudaDeviceSynchronize();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "fill";
  const size_t bytes = (argc > 2 ? static_cast<size_t>(std::atoll(argv[2])) : 64) * kMib;
  if (std::strcmp(mode, "virtual") == 0) return fill_virtual(bytes);
  if (std::strcmp(mode, "graphs") == 0) return fill_graphs(bytes);
  if (std::strcmp(mode, "cost") == 0) return cost();
  return fill(bytes);
}
