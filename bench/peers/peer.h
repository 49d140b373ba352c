/* An allocator of someone else's, as allocators_bench plays it: a shared library with one function. Plain C,
 * so that a library may be built by another compiler, against another project. */
#ifndef HEADROOM_BENCH_PEER_H
#define HEADROOM_BENCH_PEER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct headroom_peer {
  const char* name;
  /* Makes it anew on GPU 0, whose context exists and where nothing of it is live, and counts from zero. Zero
   * where the machine has no such thing. */
  int (*start)(void);
  /* Memory for work on a stream of CUDA, NULL where there is no room. From any thread, as is deallocate. */
  void* (*allocate)(size_t bytes, void* stream);
  void (*deallocate)(void* pointer, size_t bytes, void* stream);
  /* The most it has held from the driver since the start, and the driver calls it made; -1 where it does not
   * say. */
  int64_t (*reserved_peak_bytes)(void);
  int64_t (*driver_calls)(void);
  /* Gives all that is idle back to the driver. */
  void (*trim)(void);
} headroom_peer;

/* The peers of the library; `count` says how many. */
__attribute__((visibility("default"))) const headroom_peer* headroom_peers(size_t* count);

#ifdef __cplusplus
}
#endif

#endif
