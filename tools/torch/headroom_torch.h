/* Headroom's strategies as PyTorch's allocator: the functions that torch.cuda.memory.CUDAPluggableAllocator
 * takes by name, and the hooks that it takes by address (see python/headroom/torch/allocator.py). Streams are
 * CUDA's. Each device gets its strategy at its first allocation from the environment variable
 * HEADROOM_STRATEGY (default: mapped). */
#ifndef HEADROOM_TORCH_H
#define HEADROOM_TORCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HEADROOM_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
#include <functional>
#include <utility>
struct CUstream_st;
extern "C" {
#endif

/* Memory for the stream. Throws a C++ exception, which PyTorch turns into a RuntimeError with its message,
 * when there is no room or HEADROOM_STRATEGY is malformed. */
HEADROOM_EXPORT void* headroom_malloc(ssize_t size, int device, void* stream);
HEADROOM_EXPORT void headroom_free(void* pointer, ssize_t size, int device, void* stream);

/* torch.Tensor.record_stream: the stream uses the block, too. */
HEADROOM_EXPORT void headroom_record_stream(void* pointer, void* stream);
/* torch.cuda.empty_cache: all idle memory goes back to the driver. */
HEADROOM_EXPORT void headroom_empty_cache(void);
/* torch.cuda.set_per_process_memory_fraction; no effect after the device's first allocation. */
HEADROOM_EXPORT void headroom_memory_fraction(double fraction, int device);

/* torch.cuda.reset_peak_memory_stats: peaks count from here on. */
HEADROOM_EXPORT void headroom_reset_peaks(int device);

/* Writes {"strategy", "allocations", "deallocations", "driver_calls", "driver_allocations",
 * "driver_releases", "retries", "failures", "stream_waits"} of the device as JSON into `text` of `size`
 * bytes, and for requested, allocated, active and reserved bytes {"X_bytes", "X_peak_bytes",
 * "X_total_bytes"}. Returns the length it needs, 0 where nothing was allocated. */
HEADROOM_EXPORT size_t headroom_statistics(int device, char* text, size_t size);

#ifdef __cplusplus
/* torch.cuda.graph and torch.cuda.MemPool: until the end, requests of the streams that the filter names come
 * from a private pool, whose memory goes to nobody else until it is released. The types are PyTorch's. */
HEADROOM_EXPORT void headroom_begin_allocate_to_pool(int device,
                                                     std::pair<unsigned long long, unsigned long long> pool,
                                                     std::function<bool(CUstream_st*)> takes_stream);
HEADROOM_EXPORT void headroom_end_allocate_to_pool(int device,
                                                   std::pair<unsigned long long, unsigned long long> pool);
HEADROOM_EXPORT void headroom_release_pool(int device,
                                           std::pair<unsigned long long, unsigned long long> pool);
}
#endif

#endif
