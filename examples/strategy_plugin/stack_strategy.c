/* A memory strategy as a plugin in C: one region, reserved at first use, that works like a stack. A block
 * freed in reverse order of allocation frees its memory at once, another one when all blocks above it are
 * free. With an installed Headroom; in its source tree add -Iallocators and the folder:
 *
 *   cc -shared -fPIC stack_strategy.c -o stack.so && headroom compare --strategy plugin=./stack.so caching */
#include <headroom_strategy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMaxBlocks = 4096 };

typedef struct {
  int64_t offset, bytes, requested;
  int live;
} stack_block;

typedef struct {
  const headroom_driver* driver;
  char* base; /* NULL until reserved */
  int64_t region_bytes, top;
  stack_block blocks[kMaxBlocks];
  int count;
  void* last_stream; /* the only stream so far that freed memory */
} stack_strategy;

static void* create(const headroom_driver* driver, const char* options, char* error, size_t error_size) {
  long mib = 64;
  if (*options != '\0' && (sscanf(options, "region=%ld", &mib) != 1 || mib < 1)) {
    snprintf(error, error_size, "knows region=MIB, not '%s'", options);
    return NULL;
  }
  stack_strategy* self = calloc(1, sizeof *self);
  if (self == NULL) {
    snprintf(error, error_size, "no memory on the host");
    return NULL;
  }
  self->driver = driver;
  self->region_bytes = (int64_t)mib << 20;
  return self;
}

static int64_t trim(void* strategy) {
  stack_strategy* self = strategy;
  if (self->base == NULL || self->count > 0) return 0;
  self->driver->unreserve(self->driver->context, self->base, self->region_bytes);
  self->base = NULL;
  return self->region_bytes;
}

static void destroy(void* strategy) {
  stack_strategy* self = strategy;
  self->count = 0;
  trim(self);
  free(self);
}

static void* allocate(void* strategy, int64_t bytes, void* stream, int64_t* block_bytes) {
  stack_strategy* self = strategy;
  const headroom_driver* driver = self->driver;
  if (self->base == NULL) self->base = driver->reserve(driver->context, self->region_bytes);
  if (self->base == NULL || self->count == kMaxBlocks || bytes > self->region_bytes - self->top) return NULL;
  driver->follow(driver->context, stream, self->last_stream);
  stack_block* block = &self->blocks[self->count++];
  *block = (stack_block){self->top, bytes, bytes, 1};
  self->top += bytes;
  *block_bytes = bytes;
  return self->base + block->offset;
}

static int64_t deallocate(void* strategy, void* pointer, int64_t bytes, void* stream) {
  stack_strategy* self = strategy;
  int found = self->count - 1;
  while (found >= 0 && (!self->blocks[found].live || self->base + self->blocks[found].offset != pointer)) {
    --found;
  }
  if (found < 0 || self->blocks[found].requested != bytes) return 0;
  /* Later users of the region wait for this stream, and through it for those before. */
  self->driver->follow(self->driver->context, stream, self->last_stream);
  self->last_stream = stream;
  self->blocks[found].live = 0;
  while (self->count > 0 && !self->blocks[self->count - 1].live) {
    self->top = self->blocks[--self->count].offset;
  }
  return bytes;
}

static int64_t largest_free_block(void* strategy) {
  const stack_strategy* self = strategy;
  return self->base == NULL ? 0 : self->region_bytes - self->top;
}

const headroom_strategy* headroom_strategy_v1(void) {
  static const headroom_strategy functions = {
      sizeof functions, create, destroy, allocate, deallocate, trim, largest_free_block,
  };
  return &functions;
}
