/* The C interface of memory strategies, both ways. It includes no other header of the project.
 *
 * A strategy of yours for our programs: a shared library that exports headroom_strategy_v1, chosen with
 * --strategy plugin=PATH[:KEY=VALUE,...].
 *
 * A strategy of ours for your program: headroom_open and what follows it, in libheadroom.so.
 *
 * Version 1 never changes; later versions have other symbols. Sizes are in bytes. C99 and C++. */
#ifndef HEADROOM_STRATEGY_H
#define HEADROOM_STRATEGY_H

/* NOLINTBEGIN(readability-identifier-naming): names as in C */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory below a strategy. Ours for your strategy, valid until destroy() returns; or yours for ours, valid
 * until headroom_close() returns. Pass `context` to each function. */
typedef struct headroom_driver {
  void* context;
  /* Device memory aligned to 256 bytes; NULL if there is no room or the limit forbids it. */
  void* (*reserve)(void* context, int64_t bytes);
  /* Releases what reserve returned for the same bytes. destroy() must release everything. */
  void (*unreserve)(void* context, void* pointer, int64_t bytes);
  /* The most that reserve can take now: what the limit leaves, or in a driver of yours what is free. */
  int64_t (*reservable_bytes)(void* context);
  /* Makes work queued on `stream` from now on wait for the work of `freed_on`. A strategy calls it before
   * memory freed on one stream is handed out to another. NULL in a driver of yours without streams. */
  void (*follow)(void* context, void* stream, void* freed_on);
} headroom_driver;

/* ---- A strategy of yours ----
 * It gets one call at a time; sizes are multiples of 256. */
typedef struct headroom_strategy {
  /* sizeof(headroom_strategy), so that a library with another layout is refused. */
  size_t size;
  /* A new strategy, or NULL with a message in `error`. `options` is "key=value,key=value" or "". */
  void* (*create)(const headroom_driver* driver, const char* options, char* error, size_t error_size);
  void (*destroy)(void* strategy);
  /* A block of at least `bytes` (> 0) for `stream`, with its full size in `block_bytes`; NULL: no room. */
  void* (*allocate)(void* strategy, int64_t bytes, void* stream, int64_t* block_bytes);
  /* Frees what allocate returned for the same `bytes`; returns the full size of the block, 0 if there is
   * none. */
  int64_t (*deallocate)(void* strategy, void* pointer, int64_t bytes, void* stream);
  /* Releases idle memory to the driver; returns the bytes released. */
  int64_t (*trim)(void* strategy);
  /* The largest free block of reserved memory. */
  int64_t (*largest_free_block)(void* strategy);
} headroom_strategy;

/* The symbol that the library must export. */
const headroom_strategy* headroom_strategy_v1(void);

/* ---- A strategy of ours ----
 * Thread-safe. Functions that return a headroom_status set the message of headroom_error() unless they
 * return HEADROOM_OK. */
typedef enum headroom_status {
  HEADROOM_OK = 0,
  HEADROOM_FAILED = 1,        /* anything without a code of its own */
  HEADROOM_BAD_INPUT = 2,     /* an unknown strategy, device or pointer, a negative size */
  HEADROOM_OUT_OF_MEMORY = 3, /* headroom_error() says who holds the memory */
  HEADROOM_DEVICE_FAILED = 4  /* the driver or a library failed */
} headroom_status;

typedef struct headroom_allocator headroom_allocator;

/* The version of the library, "1.2.3". */
const char* headroom_version(void);
/* One line: why the last call of this thread that failed did so. Valid until its next call fails. */
const char* headroom_error(void);
/* The names of all strategies, for index 0, 1, ...; NULL after the last one. */
const char* headroom_strategy_name(int index);

/* A strategy, as --strategy takes it ("mapped", "caching:max_split=128MiB+limit=4GiB"), over a device:
 * "cuda", "cuda:N", "sim:PROFILE", "sim:PROFILE:N" or "cpu". Memory of the last three is the host's. */
headroom_status headroom_open(const char* strategy, const char* device, headroom_allocator** allocator);
/* The same over memory of your own. A strategy that needs pages or the driver's own pool is refused. */
headroom_status headroom_open_on(const char* strategy, const headroom_driver* driver,
                                 headroom_allocator** allocator);
/* Releases everything to the driver, live blocks too. NULL does nothing. */
void headroom_close(headroom_allocator* allocator);

/* A block of `bytes` for work on `stream` (a cudaStream_t; NULL: the default one), aligned to 256 bytes; NULL
 * for zero bytes. */
headroom_status headroom_allocate(headroom_allocator* allocator, int64_t bytes, void* stream, void** pointer);
/* Frees a block; work already queued on `stream` may still use it. NULL does nothing. */
headroom_status headroom_deallocate(headroom_allocator* allocator, void* pointer, void* stream);
/* Notes that `stream` uses the block, too: it is reused only after the work queued there by the time it is
 * freed. */
headroom_status headroom_record_use(headroom_allocator* allocator, void* pointer, void* stream);
/* Releases idle memory to the driver; returns the bytes released. */
int64_t headroom_trim(headroom_allocator* allocator);

/* Counts of one allocator. Later versions of the library may add fields at the end. */
typedef struct headroom_counts {
  int64_t requested_bytes, requested_peak_bytes; /* as asked */
  int64_t allocated_bytes, allocated_peak_bytes; /* blocks in use, rounded */
  int64_t reserved_bytes, reserved_peak_bytes;   /* held from the driver */
  int64_t allocations, deallocations, driver_calls, retries, failures, stream_waits;
  int64_t largest_free_block_bytes;
  int64_t device_free_bytes, device_total_bytes;
} headroom_counts;

/* Fills the first `size` bytes of `counts`: pass sizeof *counts. */
headroom_status headroom_count(headroom_allocator* allocator, headroom_counts* counts, size_t size);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(readability-identifier-naming) */

#endif
