/* The C interface of a memory strategy in a shared library, chosen with
 * --strategy plugin=PATH[:KEY=VALUE,...]. Version 1 never changes; later versions have another symbol.
 * A strategy gets one call at a time; sizes are in bytes and multiples of 256. */
#ifndef HEADROOM_STRATEGY_H
#define HEADROOM_STRATEGY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The driver functions for a strategy, valid until destroy() returns. Pass `context` to each. */
typedef struct headroom_driver {
  void* context;
  /* Device memory aligned to 256 bytes; NULL if there is no room or the limit forbids it. */
  void* (*reserve)(void* context, int64_t bytes);
  /* Releases what reserve returned for the same bytes. destroy() must release everything. */
  void (*unreserve)(void* context, void* pointer, int64_t bytes);
  /* The most that the limit lets reserve take. */
  int64_t (*reservable_bytes)(void* context);
  /* Makes work queued on `stream` from now on wait for the work of `freed_on`. Call it before memory freed on
   * one stream is handed out to another. */
  void (*follow)(void* context, void* stream, void* freed_on);
} headroom_driver;

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

#ifdef __cplusplus
}
#endif

#endif
