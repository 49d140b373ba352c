/* A memory strategy in a shared library: what it has to offer and what it gets, in plain C. Chosen with
 * --strategy plugin=PATH[:KEY=VALUE,...]. The interface of version 1 never changes; later ones get another
 * symbol. Calls for one strategy come one at a time; sizes are in bytes and multiples of 256. */
#ifndef HEADROOM_STRATEGY_H
#define HEADROOM_STRATEGY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The device as a strategy sees it; valid until destroy() returns. `context` is passed to each. */
typedef struct headroom_driver {
  void* context;
  /* Device memory aligned to 256 bytes, or NULL where there is no room or the limit forbids it. */
  void* (*reserve)(void* context, int64_t bytes);
  /* Gives back what reserve returned for the same bytes. All must be given back by destroy(). */
  void (*unreserve)(void* context, void* pointer, int64_t bytes);
  /* How much one reserve may ask for by the limit alone. */
  int64_t (*reservable_bytes)(void* context);
  /* To be called before memory that came back on one stream goes to another: work queued on `stream` from now
   * on begins after that of `freed_on`. */
  void (*follow)(void* context, void* stream, void* freed_on);
} headroom_driver;

typedef struct headroom_strategy {
  /* sizeof(headroom_strategy), so that a library of another layout is refused. */
  size_t size;
  /* A new strategy, or NULL with a message in `error`. `options` is "key=value,key=value" or "". */
  void* (*create)(const headroom_driver* driver, const char* options, char* error, size_t error_size);
  void (*destroy)(void* strategy);
  /* A block of at least `bytes` (> 0) for `stream`, with its full size in `block_bytes`; NULL: no room. */
  void* (*allocate)(void* strategy, int64_t bytes, void* stream, int64_t* block_bytes);
  /* Takes back what allocate returned for the same `bytes`; returns the full size of the block, 0 where there
   * is no such block. */
  int64_t (*deallocate)(void* strategy, void* pointer, int64_t bytes, void* stream);
  /* Gives idle memory back to the driver; returns how many bytes. */
  int64_t (*trim)(void* strategy);
  /* The largest block that is reserved and free. */
  int64_t (*largest_free_block)(void* strategy);
} headroom_strategy;

/* The symbol that the library must have. */
const headroom_strategy* headroom_strategy_v1(void);

#ifdef __cplusplus
}
#endif

#endif
