/* A plugin that breaks the contract of strategies in the way that its options name. */
#include <headroom_strategy.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const headroom_driver* driver;
} faulty_strategy;

static void* create(const headroom_driver* driver, const char* options, char* error, size_t error_size) {
  (void)error;
  (void)error_size;
  if (strcmp(options, "fault=silent") == 0) return NULL;
  faulty_strategy* self = calloc(1, sizeof *self);
  if (self != NULL) self->driver = driver;
  return self;
}

static void destroy(void* strategy) {
  free(strategy);
}

/* A block that is 256 bytes too small. */
static void* allocate(void* strategy, int64_t bytes, void* stream, int64_t* block_bytes) {
  faulty_strategy* self = strategy;
  (void)stream;
  void* block = self->driver->reserve(self->driver->context, bytes);
  *block_bytes = bytes - 256;
  return block;
}

static int64_t deallocate(void* strategy, void* pointer, int64_t bytes, void* stream) {
  faulty_strategy* self = strategy;
  (void)stream;
  self->driver->unreserve(self->driver->context, pointer, bytes);
  return bytes - 256;
}

static int64_t trim(void* strategy) {
  (void)strategy;
  return 0;
}

static int64_t largest_free_block(void* strategy) {
  (void)strategy;
  return 0;
}

const headroom_strategy* headroom_strategy_v1(void) {
  static const headroom_strategy functions = {
      sizeof(headroom_strategy), create, destroy, allocate, deallocate, trim, largest_free_block};
  return &functions;
}
